/// Writes the visitor of families that work on rows one by one (the phases of row reductions are in
/// row_phases.h).
#pragma once

#include "templates/families/group_code.h"

namespace tilewright::templates {

/// The whole visitor of a family whose phases are begin_columns, begin_row, load, visit and store:
/// pointwise (batched false) and simt_gemm (batched true: the last row axis is counted by itself).
void write_visitor(Code& code, const GroupCode& group, bool batched, int products);

}  // namespace tilewright::templates
