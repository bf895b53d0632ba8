/// Names and constants in generated code. The operator's names are not among them: operators that
/// differ in names only share their images, and no name can clash with what a kernel declares.
///
///   in0 in1 ...    the group's inputs in their order       n0 n1 ...    its dynamic dimensions
///   out0 out1 ...  its outputs in their order              v0 v1 ...    what its statements compute
///
/// Parts of a statement have its name and what they are, "v2_sum"; the templates declare no name of
/// these forms.
#pragma once

#include <string>
#include <string_view>

#include "templates/operator/operator.h"

namespace tilewright::templates {

std::string input_name(ValueId input);              ///< "in0": inputs are the first values
std::string output_name(std::size_t output);        ///< "out0"
std::string statement_name(std::size_t statement);  ///< "v0"
std::string dimension_name(std::size_t dimension);  ///< "n0"

/// "tilewright_pointwise": of the kernel of a family.
std::string kernel_name(std::string_view family);

/// "bf16".
std::string_view device_type(DType dtype);

/// A float constant that reads back to the nearest f32: "0.5f", "bits_as<float>(0x7f800000)".
std::string float_literal(double value);

}  // namespace tilewright::templates
