/// Which entry serves where nobody tunes: whoever reads an exported file, or a store without its
/// daemon. What is not wished for is then as good as anything.
#pragma once

#include "cache/record.h"

namespace tilewright::cache {

/// Among the entries whose range holds one that meets the wishes if there is any, else any; null
/// where none holds. What is not wished for is, if there is a choice, as in jit::Conditions(), else
/// as near to that as there is. Errors: as of Wishes::over.
Result<const Entry*> find_wished(const Record& record, const templates::Bindings& sizes,
                                 const jit::Wishes& wishes);

}  // namespace tilewright::cache
