#include "cache/json_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cache/base64.h"
#include "templates/operator/parse.h"

namespace tilewright::cache {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "tilewright-cache";
constexpr int kLinesVersion = 3;
/// Of brackets in brackets. Ours have seven; a reader that recurses needs a stack for each.
constexpr int kMaxDepth = 64;

std::string text_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Over the line without its checksum; members are sorted, so the text is one of a kind.
std::string checksum_of(const json& object) { return digest_of(text_of(object)).hex(); }

std::string sealed(json object) {
  object["checksum"] = checksum_of(object);
  return text_of(object);
}

int depth_of(std::string_view line) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    char letter = line[i];
    if (in_string) {
      if (letter == '\\') ++i;
      if (letter == '"') in_string = false;
    } else if (letter == '"') {
      in_string = true;
    } else if (letter == '{' || letter == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (letter == '}' || letter == ']') {
      --depth;
    }
  }
  return deepest;
}

json to_json(const jit::Image& image) {
  json kernels = json::array();
  for (const jit::KernelResources& kernel : image.kernels) {
    kernels.push_back({{"kernel", kernel.kernel},
                       {"registers", kernel.registers},
                       {"static_shared_bytes", kernel.static_shared_bytes},
                       {"spill_store_bytes", kernel.spill_store_bytes},
                       {"spill_load_bytes", kernel.spill_load_bytes},
                       {"stack_bytes", kernel.stack_bytes},
                       {"max_threads", kernel.max_threads}});
  }
  return {{"digest", image.digest.hex()},    {"architecture", image.architecture.name()},
          {"ptx", base64_encode(image.ptx)}, {"cubin", base64_encode(image.cubin)},
          {"compile_ms", image.compile_ms},  {"kernels", std::move(kernels)}};
}

Result<jit::Image> image_from_json(const json& object) {
  jit::Image image;
  try {
    TILEWRIGHT_ASSIGN_OR_RETURN(image.digest,
                                Digest::parse(object.at("digest").get<std::string>()));
    TILEWRIGHT_ASSIGN_OR_RETURN(
        image.architecture, jit::Architecture::parse(object.at("architecture").get<std::string>()));
    TILEWRIGHT_ASSIGN_OR_RETURN(image.ptx, base64_decode(object.at("ptx").get<std::string>()));
    TILEWRIGHT_ASSIGN_OR_RETURN(image.cubin, base64_decode(object.at("cubin").get<std::string>()));
    image.compile_ms = object.at("compile_ms").get<double>();
    for (const json& one : object.at("kernels")) {
      jit::KernelResources& kernel = image.kernels.emplace_back();
      kernel.kernel = one.at("kernel").get<std::string>();
      kernel.registers = one.at("registers").get<int>();
      kernel.static_shared_bytes = one.at("static_shared_bytes").get<int>();
      kernel.spill_store_bytes = one.at("spill_store_bytes").get<int>();
      kernel.spill_load_bytes = one.at("spill_load_bytes").get<int>();
      kernel.stack_bytes = one.at("stack_bytes").get<int>();
      kernel.max_threads = one.at("max_threads").get<int>();
    }
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("image: {}", error.what()));
  }
  if (image.ptx.empty() && image.cubin.empty())
    return fail(ErrorCode::kInvalidArgument, "image has neither ptx nor cubin");
  return image;
}

Result<void> check(const Record& record) {
  auto op = templates::parse_operator(record.key.operator_text, "record.operator");
  if (!op) return fail(std::move(op.error()));
  Digest problem = problem_digest(*op, record.key.device);
  if (problem != record.key.problem) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("record.problem is {}, expected {} (of its operator and device)",
                            record.key.problem.hex(), problem.hex()));
  }
  for (const Entry& entry : record.entries) {
    TILEWRIGHT_TRY(jit::check(entry.plan));
    if (!(entry.narrow == jit::Plan())) TILEWRIGHT_TRY(jit::check(entry.narrow));
  }
  return {};
}

Result<Line> header_from_json(const json& object, const std::string& format) {
  if (format != kFormat) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("format is '{}', expected {}", format, kFormat));
  }
  if (!object.contains("version") || object["version"] != kLinesVersion) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("version is {}, expected {}", object.value("version", json()).dump(),
                            kLinesVersion));
  }
  return Line(Header{});
}

}  // namespace

std::string to_line(const Header&) {
  return sealed({{"kind", "header"}, {"format", kFormat}, {"version", kLinesVersion}});
}

std::string to_line(const jit::Image& image) {
  return sealed({{"kind", "image"}, {"image", to_json(image)}});
}

std::string to_line(const Record& record) {
  return sealed({{"kind", "record"}, {"record", json::parse(cache::to_json(record))}});
}

Result<Line> parse_line(const std::string& line) {
  if (int depth = depth_of(line); depth > kMaxDepth) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("line nests {} deep, expected at most {}", depth, kMaxDepth));
  }
  json object = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return fail(ErrorCode::kInvalidArgument, "line is not a JSON object");
  auto text = [&](const char* name) {
    auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  std::string kind = text("kind"), stated = text("checksum");
  object.erase("checksum");
  if (std::string seen = checksum_of(object); seen != stated) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("line has checksum {}, expected '{}'", seen, stated));
  }
  if (kind == "header") return header_from_json(object, text("format"));
  if (kind == "record") {
    TILEWRIGHT_ASSIGN_OR_RETURN(Record record,
                                record_from_json(text_of(object.value("record", json()))));
    TILEWRIGHT_TRY(check(record));
    return Line(std::move(record));
  }
  if (kind == "image") {
    TILEWRIGHT_ASSIGN_OR_RETURN(jit::Image image, image_from_json(object.value("image", json())));
    return Line(std::move(image));
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("kind is '{}', expected record or image", kind));
}

}  // namespace tilewright::cache
