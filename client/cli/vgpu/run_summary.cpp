#include "client/cli/vgpu/run_summary.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "client/cli/session.h"

namespace tilewright::cli {
namespace {

using nlohmann::json;

double total_of(const json& rows) {
  double sum = 0;
  for (const json& row : rows) sum += row.value("modelled_us", 0.0);
  return sum;
}

std::string scaled(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  std::size_t i = 0;
  for (; value >= 1000 && i + 1 < std::size(kPrefixes); ++i) value /= 1000;
  return fmt::format("{:.3g} {}{}", value, kPrefixes[i], unit);
}

void print_table(const json& summary, std::ostream& out) {
  const json kernels = summary.value("kernels", json::array());
  const json copies = summary.value("copies", json::array());
  const double kernels_us = total_of(kernels), all_us = kernels_us + total_of(copies);
  auto share = [&](double us) { return all_us > 0 ? 100 * us / all_us : 0; };
  out << printable(fmt::format("{}: {:.1f} us modelled, {:.1f} us of them in kernels\n",
                               summary.value("device", ""), all_us, kernels_us));
  out << fmt::format("{:>7} {:>11} {:>8} {:>10} {:>10} {:>10} {:>8} {:>6} {:>9} {:>10}  {}\n",
                     "share", "total us", "launches", "mean us", "least us", "most us", "bound by",
                     "per SM", "DRAM", "tensor", "kernel");
  for (const json& row : kernels) {
    const double us = row.value("modelled_us", 0.0);
    const auto launches = row.value("launches", std::uint64_t{1});
    out << printable(fmt::format(
        "{:>6.1f}% {:>11.1f} {:>8} {:>10.2f} {:>10.2f} {:>10.2f} {:>8} {:>6} {:>9} {:>10}  {}\n",
        share(us), us, launches, us / double(launches), row.value("least_us", 0.0),
        row.value("most_us", 0.0), row.value("bound_by", ""), row.value("blocks_per_sm", 0),
        scaled(row.value("dram_bytes", 0.0), "B"),
        scaled(row.value("tensor_operations", 0.0), "FLOP"), row.value("kernel", "")));
  }
  for (const json& row : copies) {
    const double us = row.value("modelled_us", 0.0);
    out << printable(fmt::format("{:>6.1f}% {:>11.1f} {:>8}  {}, {}\n", share(us), us,
                                 row.value("count", 0), row.value("kind", ""),
                                 scaled(row.value("bytes", 0.0), "B")));
  }
}

}  // namespace

void print_run_summary(const std::filesystem::path& file, bool json_wanted, std::ostream& out) {
  std::ifstream stream(file);
  bool any = false;
  for (std::string line; std::getline(stream, line);) {
    const json summary = json::parse(line, nullptr, false);
    if (summary.is_discarded()) continue;
    any = true;
    if (json_wanted)
      out << line << "\n";
    else
      print_table(summary, out);
  }
  if (!any) out << (json_wanted ? "{\"kernels\": [], \"copies\": []}\n" : "nothing was launched\n");
}

}  // namespace tilewright::cli
