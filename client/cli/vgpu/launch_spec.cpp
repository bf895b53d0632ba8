#include "client/cli/vgpu/launch_spec.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include "client/cli/vgpu/spec_reader.h"

namespace tilewright::cli {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 32;

class Parser {
 public:
  explicit Parser(const std::string& file) : read_(file) { spec_.file = file; }

  Result<LaunchSpec> whole(const YAML::Node& root,
                           const std::map<std::string, std::int64_t>& overrides) {
    TILEWRIGHT_TRY(
        read_.check_keys(root, "the specification",
                         {"source", "kernel", "sizes", "architectures", "flags", "grid", "block",
                          "cluster", "shared", "arguments", "data", "body", "expect"}));
    TILEWRIGHT_TRY(sizes(root, overrides));
    TILEWRIGHT_TRY(head(root));
    TILEWRIGHT_TRY(arguments(root));
    if (root["data"])
      for (const auto& item : items(root["data"])) TILEWRIGHT_TRY(data(item));
    for (const Buffer& buffer : spec_.buffers) TILEWRIGHT_TRY(check_view(buffer));
    TILEWRIGHT_TRY(check_arguments());
    TILEWRIGHT_TRY(body(root["body"]));
    TILEWRIGHT_TRY(expect(root["expect"]));
    return std::move(spec_);
  }

 private:
  static std::vector<YAML::Node> items(const YAML::Node& list) {
    std::vector<YAML::Node> all;
    if (list.IsSequence())
      for (const auto& item : list) all.push_back(item);
    else
      all.push_back(list);
    return all;
  }
  tl::unexpected<Error> invalid(int line, const std::string& message) const {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", spec_.file, line, message));
  }

  Result<void> sizes(const YAML::Node& root, const std::map<std::string, std::int64_t>& overrides) {
    if (YAML::Node section = root["sizes"]) {
      if (!section.IsMap())
        return read_.invalid(section,
                             fmt::format("sizes is {}, expected a map of names to integers",
                                         SpecReader::seen(section)));
      for (const auto& entry : section) {
        TILEWRIGHT_ASSIGN_OR_RETURN(std::string name,
                                    read_.name(entry.first, "the name of a size"));
        if (read_.sizes.count(name) > 0)
          return read_.invalid(entry.first, "sizes has '" + name + "' twice, expected it once");
        TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t value,
                                    read_.integer(entry.second, "size '" + name + "'",
                                                  std::numeric_limits<std::int64_t>::min()));
        auto given = overrides.find(name);
        read_.sizes[name] = given == overrides.end() ? value : given->second;
      }
    }
    for (const auto& [name, value] : overrides)
      if (read_.sizes.count(name) == 0)
        return read_.invalid(root, "there is no size '" + name + "', expected one of sizes");
    spec_.sizes = read_.sizes;
    return {};
  }

  Result<void> head(const YAML::Node& root) {
    if (root["source"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(std::string source, read_.text(root["source"], "source"));
      spec_.source = source;
    }
    if (root["kernel"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(spec_.kernel, read_.text(root["kernel"], "kernel"));
    }
    if (YAML::Node section = root["architectures"])
      for (const auto& item : items(section)) {
        TILEWRIGHT_ASSIGN_OR_RETURN(std::string name, read_.text(item, "architecture"));
        auto parsed = jit::Architecture::parse(name);
        if (!parsed) return read_.invalid(item, parsed.error().message);
        spec_.architectures.push_back(*parsed);
      }
    if (root["flags"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(spec_.flags, read_.texts(root["flags"], "flags"));
    }
    if (!root["grid"] || !root["block"])
      return read_.invalid(root, fmt::format("the specification has no {}, expected its extents",
                                             root["grid"] ? "block" : "grid"));
    TILEWRIGHT_TRY(extents(root["grid"], "grid", spec_.grid));
    TILEWRIGHT_TRY(extents(root["block"], "block", spec_.block));
    const std::uint64_t threads = std::uint64_t{spec_.block[0]} * spec_.block[1] * spec_.block[2];
    if (threads > 1024)
      return read_.invalid(root["block"],
                           fmt::format("block has {} threads, expected at most 1024", threads));
    if (root["cluster"]) TILEWRIGHT_TRY(extents(root["cluster"], "cluster", spec_.cluster));
    if (root["shared"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t bytes, read_.integer(root["shared"], "shared", 0));
      if (bytes > 232448)
        return read_.invalid(root["shared"],
                             fmt::format("shared is {}, expected at most 232448 bytes", bytes));
      spec_.shared_bytes = static_cast<unsigned>(bytes);
    }
    return {};
  }

  Result<void> extents(const YAML::Node& node, const std::string& what,
                       std::array<unsigned, 3>& out) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto given, read_.integers(node, what, 1));
    if (given.empty() || given.size() > 3)
      return read_.invalid(
          node, fmt::format("{} has {} extents, expected one to three", what, given.size()));
    out = {1, 1, 1};
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (given[i] > (i == 0 ? 0x7fffffff : 65535))
        return read_.invalid(node, fmt::format("{} has the extent {}, expected at most {}", what,
                                               given[i], i == 0 ? 0x7fffffff : 65535));
      out[i] = static_cast<unsigned>(given[i]);
    }
    return {};
  }

  Result<void> arguments(const YAML::Node& root) {
    YAML::Node section = root["arguments"];
    if (!section) return {};
    if (!section.IsSequence())
      return read_.invalid(section,
                           fmt::format("arguments is {}, expected a list in the kernel's order",
                                       SpecReader::seen(section)));
    for (const auto& item : section) TILEWRIGHT_TRY(argument(item));
    return {};
  }

  Result<void> argument(const YAML::Node& item) {
    if (!item.IsMap())
      return read_.invalid(item, fmt::format("an argument is {}, expected a map with a name",
                                             SpecReader::seen(item)));
    Argument argument;
    argument.line = SpecReader::line_of(item);
    if (!item["name"]) return read_.invalid(item, "an argument has no name, expected name: NAME");
    TILEWRIGHT_ASSIGN_OR_RETURN(argument.name, read_.name(item["name"], "name of an argument"));
    const std::string what = "argument '" + argument.name + "'";
    if (item["buffer"]) {
      TILEWRIGHT_TRY(read_.check_keys(item, what, {"name", "buffer", "shape", "fill", "seed"}));
      TILEWRIGHT_TRY(buffer(item, item["buffer"], argument.name, what));
      argument.value = Pointer{argument.name, 0};
    } else if (item["scalar"]) {
      TILEWRIGHT_TRY(read_.check_keys(item, what, {"name", "scalar", "value"}));
      TILEWRIGHT_ASSIGN_OR_RETURN(std::string type, read_.text(item["scalar"], "type of " + what));
      auto element = parse_element(type);
      if (!element) return read_.invalid(item["scalar"], what + ": " + element.error().message);
      if (!item["value"]) return read_.invalid(item, what + " has no value, expected a number");
      TILEWRIGHT_ASSIGN_OR_RETURN(auto values, read_.numbers(item["value"], "value of " + what));
      std::vector<std::byte> bytes(bytes_of(*element, values.size()));
      for (std::size_t i = 0; i < values.size(); ++i) write(*element, bytes.data(), i, values[i]);
      argument.value = std::move(bytes);
    } else if (item["pointer"]) {
      TILEWRIGHT_TRY(read_.check_keys(item, what, {"name", "pointer", "offset"}));
      Pointer pointer;
      TILEWRIGHT_ASSIGN_OR_RETURN(pointer.of, read_.name(item["pointer"], "pointer of " + what));
      if (item["offset"]) {
        TILEWRIGHT_ASSIGN_OR_RETURN(pointer.offset,
                                    read_.integer(item["offset"], "offset of " + what,
                                                  std::numeric_limits<std::int64_t>::min()));
      }
      argument.value = pointer;
    } else if (item["tensor_map"]) {
      TILEWRIGHT_TRY(tensor_map(item, what, argument));
    } else {
      return read_.invalid(
          item, what + " says nothing of its kind, expected buffer, scalar, pointer or tensor_map");
    }
    for (const Argument& other : spec_.arguments)
      if (other.name == argument.name)
        return read_.invalid(item, what + " is there twice, expected names that differ");
    spec_.arguments.push_back(std::move(argument));
    return {};
  }

  Result<void> tensor_map(const YAML::Node& item, const std::string& what, Argument& argument) {
    TILEWRIGHT_TRY(read_.check_keys(
        item, what, {"name", "tensor_map", "box", "shape", "strides", "swizzle", "fill"}));
    TensorMap map;
    TILEWRIGHT_ASSIGN_OR_RETURN(map.of, read_.name(item["tensor_map"], "tensor_map of " + what));
    if (!item["box"]) return read_.invalid(item, what + " has no box, expected its extents");
    TILEWRIGHT_ASSIGN_OR_RETURN(map.box, read_.integers(item["box"], "box of " + what, 1));
    if (item["shape"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(map.shape, read_.integers(item["shape"], "shape of " + what, 1));
    }
    if (item["strides"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(map.strides,
                                  read_.integers(item["strides"], "strides of " + what, 0));
    }
    if (item["swizzle"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t bytes,
                                  read_.integer(item["swizzle"], "swizzle of " + what, 0));
      if (bytes != 0 && bytes != 32 && bytes != 64 && bytes != 128)
        return read_.invalid(
            item["swizzle"],
            fmt::format("swizzle of {} is {}, expected 0, 32, 64 or 128 bytes", what, bytes));
      map.swizzle = static_cast<int>(bytes);
    }
    if (item["fill"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(std::string fill, read_.text(item["fill"], "fill of " + what));
      if (fill != "zeros" && fill != "nan")
        return read_.invalid(item["fill"],
                             fmt::format("fill of {} is '{}', expected zeros or nan", what, fill));
      map.nan_fill = fill == "nan";
    }
    argument.value = std::move(map);
    return {};
  }

  Result<void> data(const YAML::Node& item) {
    if (!item.IsMap() || !item["name"] || !item["buffer"])
      return read_.invalid(item, "an entry of data needs name and buffer, expected as arguments");
    TILEWRIGHT_ASSIGN_OR_RETURN(std::string name, read_.name(item["name"], "name of data"));
    const std::string what = "data '" + name + "'";
    TILEWRIGHT_TRY(read_.check_keys(item, what, {"name", "buffer", "shape", "fill", "seed"}));
    return buffer(item, item["buffer"], name, what);
  }

  Result<void> buffer(const YAML::Node& item, const YAML::Node& type, const std::string& name,
                      const std::string& what) {
    Buffer buffer;
    buffer.name = name;
    buffer.line = SpecReader::line_of(item);
    TILEWRIGHT_ASSIGN_OR_RETURN(std::string dtype, read_.text(type, "dtype of " + what));
    auto element = parse_element(dtype);
    if (!element) return read_.invalid(type, what + ": " + element.error().message);
    buffer.element = *element;
    if (!item["shape"])
      return read_.invalid(item, what + " has no shape, expected a list of extents");
    TILEWRIGHT_ASSIGN_OR_RETURN(buffer.shape, read_.integers(item["shape"], "shape of " + what, 1));
    double elements = 1;
    for (std::int64_t extent : buffer.shape) elements *= double(extent);
    if (elements > double(kMostElements))
      return read_.invalid(item["shape"], fmt::format("{} has {} elements, expected at most {}",
                                                      what, elements, kMostElements));
    if (spec_.find(name))
      return read_.invalid(item, what + " is there twice, expected names that differ");
    if (item["fill"]) TILEWRIGHT_TRY(fill(item["fill"], what, buffer.fill));
    if (item["seed"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(std::int64_t seed,
                                  read_.integer(item["seed"], "seed of " + what, 0));
      buffer.fill.seed = static_cast<std::uint64_t>(seed);
    } else {
      buffer.fill.seed = spec_.buffers.size() + 1;  // buffers differ
    }
    spec_.buffers.push_back(std::move(buffer));
    return {};
  }

  Result<void> fill(const YAML::Node& node, const std::string& owner, Fill& out) {
    const std::string what = "fill of " + owner;
    constexpr const char* kKinds =
        "uninitialised, zeros, ones, nan, arange, normal, or a map with constant, arange, normal, "
        "integers, index, values or view";
    using Kind = Fill::Kind;
    if (node.IsScalar()) {
      const std::string& word = node.Scalar();
      out.kind = Kind::kConstant;
      if (word == "uninitialised") {
        out.kind = Kind::kUninitialised;
      } else if (word == "zeros") {
        out.first = 0;
      } else if (word == "ones") {
        out.first = 1;
      } else if (word == "nan") {
        out.first = std::numeric_limits<double>::quiet_NaN();
      } else if (word == "arange") {
        out.kind = Kind::kArange;
      } else if (word == "normal") {
        out.kind = Kind::kNormal;
      } else {
        return read_.invalid(node, fmt::format("{} is '{}', expected {}", what, word, kKinds));
      }
      return {};
    }
    if (!node.IsMap())
      return read_.invalid(
          node, fmt::format("{} is {}, expected {}", what, SpecReader::seen(node), kKinds));
    TILEWRIGHT_TRY(read_.check_keys(
        node, what,
        {"constant", "arange", "normal", "integers", "index", "scale", "values", "view", "where"}));
    if (node["where"]) {
      TILEWRIGHT_ASSIGN_OR_RETURN(out.where, expression(node["where"], "where of " + what));
    }
    auto pair = [&](const char* key, Kind kind) -> Result<void> {
      out.kind = kind;
      TILEWRIGHT_ASSIGN_OR_RETURN(auto values, read_.numbers(node[key], what));
      if (values.size() != 2)
        return read_.invalid(node[key], fmt::format("{} of {} has {} numbers, expected two", key,
                                                    what, values.size()));
      out.first = values[0];
      out.second = values[1];
      return {};
    };
    if (node["constant"]) {
      out.kind = Kind::kConstant;
      TILEWRIGHT_ASSIGN_OR_RETURN(out.first, read_.number(node["constant"], what));
    } else if (node["arange"]) {
      TILEWRIGHT_TRY(pair("arange", Kind::kArange));
    } else if (node["normal"]) {
      TILEWRIGHT_TRY(pair("normal", Kind::kNormal));
    } else if (node["integers"]) {
      TILEWRIGHT_TRY(pair("integers", Kind::kIntegers));
      if (out.first > out.second)
        return read_.invalid(node, fmt::format("{} is from {} to {}, expected ascending", what,
                                               out.first, out.second));
    } else if (node["values"]) {
      out.kind = Kind::kValues;
      TILEWRIGHT_ASSIGN_OR_RETURN(out.values, read_.numbers(node["values"], what));
    } else if (node["index"]) {
      out.kind = node["view"] ? Kind::kView : Kind::kIndex;
      TILEWRIGHT_ASSIGN_OR_RETURN(out.index, expression(node["index"], what));
      if (node["view"]) {
        TILEWRIGHT_ASSIGN_OR_RETURN(out.of, read_.name(node["view"], "view of " + what));
      }
      if (node["scale"]) {
        TILEWRIGHT_ASSIGN_OR_RETURN(out.second, read_.number(node["scale"], "scale of " + what));
      }
    } else {
      return read_.invalid(node, fmt::format("{} names no kind, expected {}", what, kKinds));
    }
    return {};
  }

  Result<jit::Expression> expression(const YAML::Node& node, const std::string& what) {
    TILEWRIGHT_ASSIGN_OR_RETURN(std::string text, read_.text(node, what));
    auto parsed = jit::Expression::parse(text);
    if (!parsed) return read_.invalid(node, what + ": " + parsed.error().message);
    return *parsed;
  }

  /// Views are of buffers that were filled before them.
  Result<void> check_view(const Buffer& buffer) {
    if (buffer.fill.kind != Fill::Kind::kView) return {};
    for (const Buffer& earlier : spec_.buffers) {
      if (&earlier == &buffer) break;
      if (earlier.name == buffer.fill.of) return {};
    }
    return invalid(buffer.line, fmt::format("'{}' is a view of '{}', expected a buffer above it",
                                            buffer.name, buffer.fill.of));
  }

  Result<void> check_arguments() {
    for (const Argument& argument : spec_.arguments) {
      const auto* pointer = std::get_if<Pointer>(&argument.value);
      const auto* map = std::get_if<TensorMap>(&argument.value);
      const std::string& of = pointer ? pointer->of : map ? map->of : argument.name;
      if ((pointer || map) && !spec_.find(of))
        return invalid(argument.line,
                       fmt::format("argument '{}' is of '{}', expected the name of a "
                                   "buffer",
                                   argument.name, of));
    }
    return {};
  }

  Result<void> body(const YAML::Node& node) {
    if (!node) return {};
    TILEWRIGHT_ASSIGN_OR_RETURN(auto texts, read_.texts(node, "body"));
    const auto nodes = items(node);
    for (std::size_t i = 0; i < texts.size(); ++i)
      spec_.body.push_back({texts[i], SpecReader::line_of(nodes[i])});
    return {};
  }

  Result<void> expect(const YAML::Node& node) {
    if (!node) return {};
    if (!node.IsMap())
      return read_.invalid(
          node, fmt::format("expect is {}, expected a map of buffers", SpecReader::seen(node)));
    for (const auto& entry : node) {
      Expected expected;
      expected.line = SpecReader::line_of(entry.first);
      TILEWRIGHT_ASSIGN_OR_RETURN(expected.buffer, read_.name(entry.first, "a key of expect"));
      const std::string what = "expectation of '" + expected.buffer + "'";
      if (!spec_.find(expected.buffer))
        return read_.invalid(entry.first, what + " is of no buffer, expected the name of one");
      TILEWRIGHT_TRY(
          read_.check_keys(entry.second, what, {"is", "values", "absolute", "relative", "slack"}));
      const YAML::Node& value = entry.second;
      if (value["values"] && value["is"])
        return read_.invalid(value, what + " has is and values, expected one of them");
      if (value["values"]) {
        TILEWRIGHT_ASSIGN_OR_RETURN(expected.values,
                                    read_.numbers(value["values"], "values of the " + what));
      } else if (value["is"]) {
        TILEWRIGHT_ASSIGN_OR_RETURN(expected.name, read_.name(value["is"], "is of the " + what));
      } else {
        expected.name = expected.buffer;
      }
      for (auto [key, place] :
           {std::pair("absolute", &expected.absolute), std::pair("relative", &expected.relative)})
        if (value[key]) {
          TILEWRIGHT_ASSIGN_OR_RETURN(
              *place, read_.number(value[key], std::string(key) + " of the " + what));
          if (!(*place >= 0))
            return read_.invalid(value[key], fmt::format("{} of the {} is {}, expected at least 0",
                                                         key, what, *place));
        }
      if (value["slack"]) {
        TILEWRIGHT_ASSIGN_OR_RETURN(expected.slack,
                                    read_.name(value["slack"], "slack of the " + what));
        const Buffer* slack = spec_.find(expected.slack);
        if (!slack || slack->elements() != spec_.find(expected.buffer)->elements())
          return read_.invalid(
              value["slack"],
              fmt::format("slack of the {} is '{}', expected a buffer with as many elements", what,
                          expected.slack));
      }
      spec_.expected.push_back(std::move(expected));
    }
    return {};
  }

  SpecReader read_;
  LaunchSpec spec_;
};

}  // namespace

std::size_t Buffer::elements() const {
  std::size_t count = 1;
  for (std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

const Buffer* LaunchSpec::find(std::string_view name) const {
  for (const Buffer& buffer : buffers)
    if (buffer.name == name) return &buffer;
  return nullptr;
}

Result<LaunchSpec> parse_launch_spec(const std::string& yaml, const std::string& file,
                                     const std::map<std::string, std::int64_t>& sizes) {
  try {
    const YAML::Node root = YAML::Load(yaml);
    return Parser(file).whole(root, sizes);
  } catch (const YAML::Exception& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: {}, expected YAML", file, error.mark.line + 1, error.msg));
  }
}

Result<LaunchSpec> load_launch_spec(const std::filesystem::path& file,
                                    const std::map<std::string, std::int64_t>& sizes) {
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream.good())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} cannot be read, expected a launch specification", file.string()));
  TILEWRIGHT_ASSIGN_OR_RETURN(LaunchSpec spec, parse_launch_spec(text.str(), file.string(), sizes));
  if (!spec.source.empty() && spec.source.is_relative())
    spec.source = file.parent_path() / spec.source;
  return spec;
}

}  // namespace tilewright::cli
