/// What a template declares, as plain data: made by introspect.h in a compile worker, read by whoever
/// holds a space against its template or documents it. No Clang here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jit/result.h"

namespace tilewright::templates {

/// A member of the template's `struct Config`.
struct Tunable {
  std::string name;
  std::string type;  ///< as written: "int", "bool"
  std::int64_t default_value = 0;
  std::string comment;  ///< its documentation, one line
  int line = 0;

  bool operator==(const Tunable&) const = default;
};

struct KernelParameter {
  std::string type, name;

  bool operator==(const KernelParameter&) const = default;
};

/// An extern "C" __global__ function.
struct KernelDeclaration {
  std::string name;
  std::vector<KernelParameter> parameters;
  int line = 0;

  bool operator==(const KernelDeclaration&) const = default;
};

/// Of one file; what it includes contributes nothing but its name.
struct Description {
  std::string config;  ///< qualified name, "simt_gemm::Config"; empty: it has none
  std::vector<Tunable> tunables;
  std::vector<KernelDeclaration> kernels;
  std::vector<std::string> includes;  ///< direct and indirect, sorted

  const Tunable* find(std::string_view tunable) const;
  bool operator==(const Description&) const = default;
};

std::string to_json(const Description& description);
/// Errors: kInvalidArgument.
Result<Description> description_from_json(std::string_view json);

}  // namespace tilewright::templates
