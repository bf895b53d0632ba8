/// What `tilewright vgpu check` launches: one kernel, its arguments, and what it should write. Parsed
/// from YAML; docs/virtual-gpu.md describes the form.
///
///   kernel: scale
///   sizes: {N: 1000}
///   grid: ceil_div(N, 256)
///   block: 256
///   arguments:
///     - {name: x, buffer: f32, shape: [N], fill: normal}
///     - {name: y, buffer: f32, shape: [N]}
///     - {name: n, scalar: i32, value: N}
///   body:
///     - y = mul(x, 2)
///   expect: {y: {}}
#pragma once

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "client/cli/vgpu/element.h"
#include "jit/expression.h"
#include "jit/image.h"

namespace tilewright::cli {

/// What a buffer holds before the launch.
struct Fill {
  enum class Kind {
    kUninitialised,
    kConstant,  ///< `first`
    kArange,    ///< `first` + index x `second`
    kNormal,    ///< mean `first`, deviation `second`
    kIntegers,  ///< whole numbers from `first` to `second`
    kIndex,     ///< `second` x an expression of the place
    kValues,
    kView,  ///< elements of another buffer, chosen by an expression of the place
  } kind = Kind::kUninitialised;
  double first = 0, second = 1;
  std::uint64_t seed = 1;
  std::optional<jit::Expression> index;  ///< of i (linear), i0, i1, ... and sizes
  std::optional<jit::Expression> where;  ///< likewise; elements where it is 0 stay uninitialised
  std::vector<double> values;            ///< repeated where they are fewer than elements
  std::string of;                        ///< of a view
};

struct Buffer {
  std::string name;
  Element element = Element::kF32;
  std::vector<std::int64_t> shape;
  Fill fill;
  int line = 0;

  std::size_t elements() const;
  std::size_t bytes() const { return bytes_of(element, elements()); }
};

/// A CUtensorMap of a buffer.
struct TensorMap {
  std::string of;
  std::vector<std::int64_t> box;      ///< as the shape: outermost first
  std::vector<std::int64_t> shape;    ///< empty: the buffer's
  std::vector<std::int64_t> strides;  ///< in elements, outermost first; empty: dense
  int swizzle = 0;                    ///< 0, 32, 64 or 128 bytes
  bool nan_fill = false;
};

/// The place of a buffer.
struct Pointer {
  std::string of;
  std::int64_t offset = 0;  ///< in bytes
};

struct Argument {
  std::string name;
  int line = 0;
  std::variant<Pointer, std::vector<std::byte>, TensorMap> value;  ///< bytes: of a scalar
};

struct Expected {
  std::string buffer;
  std::string name;            ///< of the body's value; empty: `values`
  std::vector<double> values;  ///< repeated
  double absolute = 0, relative = 0;
  std::string slack;  ///< a buffer whose elements are further absolute tolerances; or empty
  int line = 0;
};

struct Statement {
  std::string text;
  int line = 0;
};

struct LaunchSpec {
  std::string file;
  std::filesystem::path source;  ///< of the kernel, if the specification names it
  std::string kernel;            ///< empty: the only one
  std::map<std::string, std::int64_t> sizes;
  std::vector<jit::Architecture> architectures;
  std::vector<std::string> flags;  ///< of NVRTC
  std::array<unsigned, 3> grid{1, 1, 1}, block{1, 1, 1}, cluster{};
  unsigned shared_bytes = 0;
  std::vector<Argument> arguments;
  std::vector<Buffer> buffers;  ///< of arguments, then those that only expectations read
  std::vector<Statement> body;
  std::vector<Expected> expected;

  const Buffer* find(std::string_view name) const;
};

/// `sizes`: values that replace those of the specification.
/// Every error is kInvalidArgument and names file, line, the value seen and the value wanted.
Result<LaunchSpec> parse_launch_spec(const std::string& yaml, const std::string& file,
                                     const std::map<std::string, std::int64_t>& sizes = {});
Result<LaunchSpec> load_launch_spec(const std::filesystem::path& file,
                                    const std::map<std::string, std::int64_t>& sizes = {});

}  // namespace tilewright::cli
