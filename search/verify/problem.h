/// The tensors of what is verified, and the data kinds that are asked for.
#pragma once

#include <vector>

#include "search/verify.h"
#include "search/verify/tensor_layout.h"
#include "search/verify/test_data.h"

namespace tilewright::search {

struct Tensors {
  std::vector<TensorLayout> inputs, outputs;  ///< in the operator's order
};

/// As the job passes them. Errors: kInvalidArgument names the tensor.
Result<Tensors> layouts_of(const VerifyJob& job);

std::size_t bytes_of(const std::vector<TensorLayout>& tensors);

/// In the order in which they are run.
std::vector<DataKind> kinds_of(const VerifySettings& settings);

TestData test_data(const VerifyJob& job, const Tensors& tensors, DataKind kind);

}  // namespace tilewright::search
