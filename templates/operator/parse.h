/// Operators from YAML. docs/operators.md describes the form.
///
///   operator: swiglu
///   parameters: {T: bf16, N: 14336, K: 4096}   # names with defaults; a caller may override them
///   dimensions: [M]                            # dynamic
///   inputs:
///     x:  {dtype: T, shape: [M, K]}
///     wg: {dtype: T, shape: [N, K]}
///     wu: {dtype: T, shape: [N, K]}
///   body:
///     - gate = matmul(x, wg, transpose_b=true)
///     - up = matmul(x, wu, transpose_b=true)
///     - y = mul(silu(gate), up)
///   outputs:
///     y: {dtype: T}
///   models:                                    # named parameter sets
///     llama-3.1-8b: {N: 14336, K: 4096}
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "templates/operator/operator.h"

namespace tilewright::templates {

/// Of parameters: name to a number, a dtype name, or "dynamic" (the parameter becomes a dynamic
/// dimension of that name).
using Overrides = std::map<std::string, std::string>;

/// Every error is kInvalidArgument and names file, line, the value seen and the value wanted.
Result<Operator> parse_operator(const std::string& yaml, const std::string& file,
                                const Overrides& overrides = {});
Result<Operator> load_operator(const std::filesystem::path& file, const Overrides& overrides = {});

/// The `models` section: name to overrides.
Result<std::map<std::string, Overrides>> operator_models(const std::filesystem::path& file);

/// Types, shapes, single assignment, broadcasting, use of every name. parse_operator calls it; so
/// does whoever builds an operator by hand.
Result<void> verify(const Operator& op);

/// "M=16,N=512,T=f16": what names a parameter of the file becomes an override, the rest binds a
/// dynamic dimension. Errors name the unknown symbol and the known ones.
struct ShapeArguments {
  Overrides overrides;
  Bindings bindings;
};
Result<ShapeArguments> split_shape_arguments(const std::filesystem::path& file,
                                             const std::string& text);

}  // namespace tilewright::templates
