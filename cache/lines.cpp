#include <fmt/format.h>

#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "cache/base64.h"
#include "cache/store.h"
#include "templates/operator/parse.h"

namespace tilewright::cache {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "tilewright-cache";
constexpr int kLinesVersion = 2;

std::string text_of(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Over the line without its checksum; members are sorted, so the text is one of a kind.
std::string checksum_of(const json& object) { return digest_of(text_of(object)).hex(); }

void write_line(std::ostream& out, json object) {
  object["checksum"] = checksum_of(object);
  out << text_of(object) << '\n';
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

void merge(const Record& imported, Record& record) {
  if (record.generator != imported.generator) record.entries.clear();
  record.key = imported.key;
  record.generator = imported.generator;
  for (const Entry& entry : imported.entries) record.offer(entry);
}

struct Imported {
  std::vector<Record> records;
  std::vector<jit::Image> images;
};

Result<void> read_line(const std::string& line, bool first, Imported& into) {
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
  if (first != (kind == "header")) {
    return fail(ErrorCode::kInvalidArgument,
                first ? fmt::format("kind is '{}', expected a header first", kind)
                      : "header is repeated, expected record or image");
  }
  if (kind == "header") {
    if (text("format") != kFormat) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("format is '{}', expected {}", text("format"), kFormat));
    }
    if (!object.contains("version") || object["version"] != kLinesVersion) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("version is {}, expected {}", object.value("version", json()).dump(),
                              kLinesVersion));
    }
    return {};
  }
  if (kind == "record") {
    TILEWRIGHT_ASSIGN_OR_RETURN(Record record,
                                record_from_json(text_of(object.value("record", json()))));
    TILEWRIGHT_TRY(check(record));
    into.records.push_back(std::move(record));
    return {};
  }
  if (kind == "image") {
    TILEWRIGHT_ASSIGN_OR_RETURN(jit::Image image, image_from_json(object.value("image", json())));
    into.images.push_back(std::move(image));
    return {};
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("kind is '{}', expected record or image", kind));
}

}  // namespace

Result<std::size_t> export_lines(const Store& store, std::ostream& out) {
  std::size_t lines = 1;
  write_line(out, {{"kind", "header"}, {"format", kFormat}, {"version", kLinesVersion}});
  // Images first: whoever reads the file as a stream has them when the record comes.
  std::vector<Record> records;
  TILEWRIGHT_TRY(store.each([&](const Record& record) {
    records.push_back(record);
    return true;
  }));
  std::set<Digest> written;
  for (const Record& record : records) {
    for (const Digest& digest : record.images()) {
      if (!written.insert(digest).second) continue;
      TILEWRIGHT_ASSIGN_OR_RETURN(auto image, store.image(digest));
      if (!image) continue;  // evicted: the record is a miss where it is read, as it is here
      write_line(out, {{"kind", "image"}, {"image", to_json(*image)}});
      ++lines;
    }
    write_line(out, {{"kind", "record"}, {"record", json::parse(cache::to_json(record))}});
    ++lines;
  }
  out.flush();
  if (!out) return fail(ErrorCode::kIo, "export could not be written");
  return lines;
}

Result<std::size_t> import_lines(Store& store, std::istream& in, const std::string& file) {
  Imported imported;
  std::string line;
  std::size_t number = 0;
  while (std::getline(in, line)) {
    ++number;
    if (auto read = read_line(line, number == 1, imported); !read)
      return fail(with_context(read.error(), fmt::format("{}:{}", file, number)));
  }
  if (in.bad()) return fail(ErrorCode::kIo, fmt::format("{}: cannot be read", file));
  if (number == 0)
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}: is empty, expected a header", file));
  for (const jit::Image& image : imported.images) TILEWRIGHT_TRY(store.put_image(image));
  for (const Record& record : imported.records) {
    TILEWRIGHT_TRY(store.update(record.key, [&](Record& known) { merge(record, known); }));
  }
  return imported.records.size() + imported.images.size();
}

}  // namespace tilewright::cache
