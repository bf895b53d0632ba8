#include "client/cli/condition_flags.h"

namespace tilewright::cli {

void add_condition_flags(CLI::App& command, jit::Wishes& wishes) {
  command
      .add_option("--objective", wishes.objective,
                  "latency; throughput of launches back to back; p99; energy, on a real device")
      ->check(CLI::IsMember({"latency", "throughput", "p99", "energy"}));
  command.add_flag("--graph,!--stream", wishes.graph,
                   "Launched as a replayed graph; not as launches on a stream");
  command.add_flag("--warm-l2,!--cold-l2", wishes.warm_l2,
                   "L2 as the last launch left it; not cold");
}

}  // namespace tilewright::cli
