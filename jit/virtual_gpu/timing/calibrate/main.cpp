// tilewright-vgpu-calibrate FOLDER [DEVICE.yaml]: fits the constants of the timing model to 70 % of the rows in
// FOLDER, tells how the others agree, and prints the `timing:` part of a device description.
//
// --check only tells how the constants of DEVICE.yaml agree; --rows N fits to N rows of each regime;
// --rounds N of the search; --list FILE writes each row with its modelled time.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "jit/virtual_gpu/timing/calibrate/fit.h"

namespace {

using namespace tilewright;                   // NOLINT: the program is this file
using namespace tilewright::vgpu;             // NOLINT
using namespace tilewright::vgpu::calibrate;  // NOLINT

void print(const jit::DeviceDescription& device, const Rows& rows, bool held) {
  fmt::print("{:24} {:>7} {:>7} {:>7} {:>7}   {}\n", "regime", "rows", "tau", "ratio", "spread",
             held ? "held out" : "fitted");
  for (const Agreement& each : agreement(device, rows, held))
    fmt::print("{:24} {:7} {:7.3f} {:7.3f} {:7.3f}\n", each.regime, each.rows, each.tau, each.ratio,
               each.spread);
}

void write(const std::string& file, const jit::DeviceDescription& device, const Rows& rows) {
  std::ofstream out(file);
  out << "regime,held,m,n,k,batch,q_len,kv_len,q_heads,kv_heads,head_dim,window,measured_us,"
         "modelled_us,bound_by\n";
  for (const Row& row : rows.rows) {
    const GemmProblem& g = row.gemm;
    const AttentionProblem& a = row.attention;
    const LaunchTime time = modelled(device, row);
    out << fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{:.3f},{}\n",
                       rows.regimes[std::size_t(row.regime)], int(row.held), g.m, g.n, g.k, a.batch,
                       a.q_len, a.kv_len, a.q_heads, a.kv_heads, a.head_dim, a.window, row.us,
                       time.total_us, time.bound_by);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"fits the virtual GPU's timing model to measured latencies"};
  std::string folder, description, list;
  bool check = false;
  std::size_t rows_of_regime = 400;
  int rounds = 40;
  app.add_option("folder", folder, "of the CSV files")->required();
  app.add_option("device", description, "configs/devices/DEVICE.yaml")->required();
  app.add_flag("--check", check, "fit nothing");
  app.add_option("--rows", rows_of_regime, "fitted, of each regime");
  app.add_option("--rounds", rounds, "of the search");
  app.add_option("--list", list, "file for all rows and their modelled times, as CSV");
  CLI11_PARSE(app, argc, argv);

  auto device = jit::DeviceDescription::load(description);
  if (!device) return fmt::print(stderr, "{}\n", device.error().message), 1;
  auto rows = read_rows(folder, *device);
  if (!rows) return fmt::print(stderr, "{}\n", rows.error().message), 1;
  fmt::print("{} lines, {} excluded, {} problems\n", rows->read, rows->excluded, rows->rows.size());
  if (!check) {
    const auto begin = std::chrono::steady_clock::now();
    fit(*device, *rows, rows_of_regime, rounds, [](int round, double misfit) {
      fmt::print(stderr, "round {:3}: mean |log(modelled / measured)| {:.4f}\n", round, misfit);
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    fmt::print("fitted in {:.0f} s\n\n", seconds.count());
    print(*device, *rows, false);
  }
  print(*device, *rows, true);
  fmt::print("\nat a bound: {}\n\ntiming:\n", fmt::join(at_bounds(device->timing), ", "));
  for (const jit::TimingConstant& constant : jit::kTimingConstants)
    fmt::print("  {}: {:.4g}\n", constant.name, device->timing.*(constant.value));
  if (!list.empty()) write(list, *device, *rows);
  return 0;
}
