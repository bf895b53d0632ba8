/// Row reductions on one row of approximate values.
#pragma once

#include <vector>

#include "templates/operator/evaluate/approx.h"

namespace tilewright::templates {

using ApproxRow = std::vector<Approx>;

/// The whole result row of a reduction, softmax or norm. `x`: the whole operand row; `gain` and
/// `bias` as long as x, where the op has them.
ApproxRow reduce_row(Op op, const Attributes& attributes, const ApproxRow& x, const ApproxRow& gain,
                     const ApproxRow& bias);

/// What f32 accumulation adds to a sum of `count` terms of total size `magnitude`: nothing if the
/// terms are whole numbers (`integral`) that add up exactly.
double accumulation(double magnitude, std::int64_t count, bool integral);

}  // namespace tilewright::templates
