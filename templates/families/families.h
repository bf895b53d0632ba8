/// The families, one by one; templates/families/family.h lists them.
#pragma once

#include "templates/families/family.h"

namespace tilewright::templates {

const Family& pointwise_family();
const Family& row_reduction_family();
const Family& simt_gemm_family();

}  // namespace tilewright::templates
