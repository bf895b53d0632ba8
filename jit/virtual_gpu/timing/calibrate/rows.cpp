#include "jit/virtual_gpu/timing/calibrate/rows.h"

#include <fmt/format.h>
#include <zlib.h>

#include <charconv>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>

namespace tilewright::vgpu::calibrate {
namespace {

using Fields = std::vector<std::string_view>;

/// FNV-1a: the split must be the same everywhere.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash ^ hash >> 32;
}

struct Close {
  void operator()(gzFile file) const { gzclose(file); }
};

std::optional<std::filesystem::path> find(const std::filesystem::path& folder, const char* stem) {
  for (const char* extension : {".csv.gz", ".csv"})
    if (auto file = folder / (std::string(stem) + extension); std::filesystem::exists(file))
      return file;
  return std::nullopt;
}

/// Lines of a CSV file by the names of its header, each with a function's verdict.
class Table {
 public:
  static Result<Table> open(const std::filesystem::path& file,
                            std::initializer_list<const char*> columns) {
    Table table;
    table.name_ = file.string();
    table.file_.reset(gzopen(file.c_str(), "rb"));  // reads what is not compressed as it is
    if (!table.file_)
      return fail(ErrorCode::kNotFound, fmt::format("{} cannot be read", table.name_));
    if (!table.next_line())
      return fail(ErrorCode::kCorrupt, fmt::format("{} is empty, expected a header", table.name_));
    const Fields header = table.split();
    for (const char* column : columns) {
      const auto at = std::find(header.begin(), header.end(), column);
      if (at == header.end())
        return fail(ErrorCode::kCorrupt, fmt::format("{}:1: no column '{}'", table.name_, column));
      table.columns_.push_back(std::size_t(at - header.begin()));
    }
    table.width_ = header.size();
    return table;
  }

  /// The wanted columns of the next line; false at the end.
  Result<bool> next(Fields& out) {
    if (!next_line()) return false;
    const Fields fields = split();
    if (fields.size() != width_)
      return fail(ErrorCode::kCorrupt, fmt::format("{}:{}: {} fields, expected {}", name_, number_,
                                                   fields.size(), width_));
    out.clear();
    for (const std::size_t column : columns_) out.push_back(fields[column]);
    return true;
  }

  Result<double> number(std::string_view text) const {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= 0))
      return fail(ErrorCode::kCorrupt,
                  fmt::format("{}:{}: '{}', expected a number", name_, number_, text));
    return value;
  }

 private:
  bool next_line() {
    char buffer[4096];
    if (gzgets(file_.get(), buffer, sizeof buffer) == nullptr) return false;
    line_ = buffer;
    while (!line_.empty() && (line_.back() == '\n' || line_.back() == '\r')) line_.pop_back();
    ++number_;
    return true;
  }
  Fields split() const {
    Fields fields;
    std::string_view rest = line_;
    for (;;) {
      const auto comma = rest.find(',');
      fields.push_back(rest.substr(0, comma));
      if (comma == std::string_view::npos) return fields;
      rest.remove_prefix(comma + 1);
    }
  }

  std::unique_ptr<std::remove_pointer_t<gzFile>, Close> file_;
  std::string name_, line_;
  std::vector<std::size_t> columns_;
  std::size_t width_ = 0;
  int number_ = 0;
};

/// Collects the fastest time of each problem.
class Collector {
 public:
  Collector(Rows& out, unsigned keep) : out_(out), keep_(keep) {}

  void add(const std::string& key, const std::string& regime, Row row) {
    const std::uint64_t hash = hash_of(key);
    if (hash / 10 % 1000 >= keep_) return;
    row.held = hash % 10 >= 7;
    const auto [at, inserted] = rows_.emplace(key, out_.rows.size());
    if (!inserted) {
      Row& known = out_.rows[at->second];
      known.us = std::min(known.us, row.us);
      return;
    }
    const auto found = std::find(out_.regimes.begin(), out_.regimes.end(), regime);
    row.regime = int(found - out_.regimes.begin());
    if (found == out_.regimes.end()) out_.regimes.push_back(regime);
    out_.rows.push_back(std::move(row));
  }

 private:
  Rows& out_;
  unsigned keep_;
  std::unordered_map<std::string, std::size_t> rows_;
};

struct Format {
  GemmType type;
  const char* name;
  double bytes, tensor_tflops;  // of a weight
};

/// By m, and by what the published rates say of the whole: one number of flops per byte parts the
/// two, twice it is where arithmetic clearly binds.
std::string gemm_regime(const jit::DeviceDescription& device, const GemmProblem& gemm,
                        const Format& format) {
  if (gemm.m <= 64) return std::string(format.name) + " small m";
  const double activation = format.type == GemmType::kFp8 || format.type == GemmType::kInt8 ? 1 : 2;
  const double bytes =
      gemm.m * gemm.k * activation + gemm.n * gemm.k * format.bytes + gemm.m * gemm.n * 2;
  const double arithmetic = 2 * gemm.m * gemm.n * gemm.k / (format.tensor_tflops * 1e12);
  const double memory = bytes / (device.dram_gbps * 1e9);
  return std::string(format.name) + (arithmetic >= 2 * memory ? " compute" : " middle");
}

Result<void> read_gemms(const std::filesystem::path& file, const jit::DeviceDescription& device,
                        unsigned keep, Rows& out) {
  auto rate = [&](const char* type) {
    const auto at = device.tensor_tflops.find(type);
    return at == device.tensor_tflops.end() ? 1.0 : at->second;
  };
  const std::map<std::string_view, Format> formats = {
      {"bfloat16", {GemmType::kBf16, "gemm bf16", 2, rate("bf16")}},
      {"fp8", {GemmType::kFp8, "gemm fp8", 1, rate("e4m3")}},
      {"sq", {GemmType::kInt8, "gemm int8", 1, rate("i8")}},
      {"int8_wo", {GemmType::kInt8Weight, "gemm w8a16", 1, rate("bf16")}},
      {"int4_wo", {GemmType::kInt4Weight, "gemm w4a16", 0.5, rate("bf16")}},
  };
  TILEWRIGHT_ASSIGN_OR_RETURN(Table table, Table::open(file, {"dtype", "m", "n", "k", "us"}));
  Collector collector(out, keep);
  Fields fields;
  for (;;) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const bool more, table.next(fields));
    if (!more) return {};
    ++out.read;
    const auto format = formats.find(fields[0]);
    // Scales by blocks of 128: in part timed eagerly, and another kernel altogether.
    if (format == formats.end()) {
      ++out.excluded;
      continue;
    }
    Row row;
    row.gemm.type = format->second.type;
    row.gemm.quantized = format->second.type == GemmType::kFp8;
    TILEWRIGHT_ASSIGN_OR_RETURN(row.gemm.m, table.number(fields[1]));
    TILEWRIGHT_ASSIGN_OR_RETURN(row.gemm.n, table.number(fields[2]));
    TILEWRIGHT_ASSIGN_OR_RETURN(row.gemm.k, table.number(fields[3]));
    TILEWRIGHT_ASSIGN_OR_RETURN(row.us, table.number(fields[4]));
    // More than the device can move, of operands that its L2 does not hold: not a measurement.
    const double weights = row.gemm.n * row.gemm.k * format->second.bytes;
    if (row.us <= 0 || (weights > 2 * double(device.info.l2_bytes) &&
                        weights / (row.us * 1e-6) > device.dram_gbps * 1e9)) {
      ++out.excluded;
      continue;
    }
    const std::string regime = gemm_regime(device, row.gemm, format->second);
    collector.add(fmt::format("{},{},{},{}", fields[0], fields[1], fields[2], fields[3]), regime,
                  row);
  }
}

Result<void> read_attention(const std::filesystem::path& file, Kernel kernel,
                            const jit::DeviceDescription& device, unsigned keep, Rows& out) {
  const bool decode = kernel == Kernel::kDecode;
  TILEWRIGHT_ASSIGN_OR_RETURN(
      Table table,
      Table::open(file, {"kernel", "kv_dtype", "batch", "q_len", decode ? "kv_len" : "prefix_len",
                         "q_heads", "kv_heads", "head_dim", "window", "us"}));
  Collector collector(out, keep);
  Fields fields;
  for (;;) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const bool more, table.next(fields));
    if (!more) return {};
    ++out.read;
    // The others choose among kernels of quite different schedules, by tables of their own.
    if (!fields.front().ends_with("flash_attn_fa3")) {
      ++out.excluded;
      continue;
    }
    fields.erase(fields.begin());
    Row row;
    row.kernel = kernel;
    AttentionProblem& attention = row.attention;
    attention.kv_bytes = fields[0] == "fp8" ? 1 : 2;
    TILEWRIGHT_ASSIGN_OR_RETURN(attention.batch, table.number(fields[1]));
    TILEWRIGHT_ASSIGN_OR_RETURN(attention.q_len, table.number(fields[2]));
    TILEWRIGHT_ASSIGN_OR_RETURN(attention.kv_len, table.number(fields[3]));
    if (!decode) attention.kv_len += attention.q_len;
    TILEWRIGHT_ASSIGN_OR_RETURN(attention.q_heads, table.number(fields[4]));
    TILEWRIGHT_ASSIGN_OR_RETURN(attention.kv_heads, table.number(fields[5]));
    TILEWRIGHT_ASSIGN_OR_RETURN(attention.head_dim, table.number(fields[6]));
    TILEWRIGHT_ASSIGN_OR_RETURN(attention.window, table.number(fields[7]));
    TILEWRIGHT_ASSIGN_OR_RETURN(row.us, table.number(fields[8]));
    const double kv =
        attention.window > 0 ? std::min(attention.kv_len, attention.window) : attention.kv_len;
    const double bytes =
        2 * attention.batch * attention.kv_heads * kv * attention.head_dim * attention.kv_bytes;
    if (row.us <= 0 || (bytes > 2 * double(device.info.l2_bytes) &&
                        bytes / (row.us * 1e-6) > device.dram_gbps * 1e9)) {
      ++out.excluded;
      continue;
    }
    std::string key;
    for (std::size_t i = 0; i + 1 < fields.size(); ++i) key += std::string(fields[i]) + ",";
    const bool chunked = !decode && attention.kv_len > attention.q_len;
    collector.add(key,
                  fmt::format("{} {} kv",
                              decode    ? "decode"
                              : chunked ? "chunked prefill"
                                        : "prefill",
                              attention.kv_bytes < 2 ? "fp8" : "bf16"),
                  row);
  }
}

}  // namespace

Result<Rows> read_rows(const std::filesystem::path& folder, const jit::DeviceDescription& device,
                       unsigned keep) {
  Rows out;
  const auto gemm = find(folder, "h200_gemm");
  const auto decode = find(folder, "h200_attention_decode");
  const auto prefill = find(folder, "h200_attention_prefill");
  if (!gemm && !decode && !prefill)
    return fail(ErrorCode::kNotFound,
                fmt::format("{} has neither h200_gemm, h200_attention_decode nor "
                            "h200_attention_prefill (.csv or .csv.gz)",
                            folder.string()));
  if (gemm) TILEWRIGHT_TRY(read_gemms(*gemm, device, keep, out));
  if (decode) TILEWRIGHT_TRY(read_attention(*decode, Kernel::kDecode, device, keep, out));
  if (prefill) TILEWRIGHT_TRY(read_attention(*prefill, Kernel::kPrefill, device, keep, out));
  return out;
}

LaunchTime modelled(const jit::DeviceDescription& device, const Row& row) {
  switch (row.kernel) {
    case Kernel::kGemm:
      return best_gemm(device, row.gemm).time;
    case Kernel::kDecode:
      return best_decode(device, row.attention);
    case Kernel::kPrefill:
      return prefill(device, row.attention);
  }
  return {};
}

}  // namespace tilewright::vgpu::calibrate
