#include "daemon/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/cache/samples.h"

namespace tilewright::daemon {
namespace {

using cache::testing::value_of;
using namespace std::chrono_literals;

std::string shown(const Config& c) {
  std::ostringstream out;
  out << c.socket.path << std::oct << c.socket.directory_mode << std::dec;
  for (uid_t uid : c.socket.allowed_uids) out << " uid " << uid;
  out << " " << c.socket.max_connections << " " << c.socket.max_frame_bytes << " "
      << c.socket.max_import_bytes << " " << c.socket.max_queued_bytes << " "
      << c.socket.max_requests << " " << c.socket.handshake_timeout.count() << " "
      << c.socket.frame_timeout.count() << " " << c.socket.write_timeout.count() << " "
      << c.socket.idle_timeout.count() << "\n"
      << c.cache.folder << " " << c.cache.cap_bytes << " " << c.cache.reply_bytes << "\n"
      << (c.device.kind ? int(*c.device.kind) : -1) << " " << c.device.virtual_device << " "
      << c.device.ordinal << "\n"
      << c.tune.background << " " << c.tune.evaluations << " " << c.tune.seconds << " "
      << c.tune.strategy << " " << c.tune.seed << " " << c.tune.queue << " " << c.tune.retry_after_s
      << " " << c.tune.when << " " << c.tune.patience_s << " " << c.tune.memory_bytes << " "
      << jit::to_text(c.tune.conditions) << "\n"
      << c.fallback.verify << " " << c.fallback.verify_deadline_s << "\n"
      << c.io_threads << " " << c.worker_threads << " " << c.compile_workers << "\n"
      << c.log_level << " " << c.log_file << "\n";
  return out.str();
}

TEST(Config, TheDefaultFileStatesTheDefaults) {
  auto loaded = Config::load(std::string(TILEWRIGHT_SOURCE_DIR) + "/configs/daemon/default.yaml");
  EXPECT_EQ(shown(value_of(loaded)), shown(Config()));
  EXPECT_EQ(shown(value_of(Config::parse("", "empty.yaml"))), shown(Config()));
}

TEST(Config, ReadsEveryOption) {
  Config c = value_of(Config::parse(
      "socket: {path: /run/x.sock, directory_mode: '0750', allowed_uids: [1, 1000],\n"
      "  max_connections: 3, max_frame_bytes: 2 KiB, max_import_bytes: 1 MiB,\n"
      "  max_queued_bytes: 1.5KiB, max_requests: 7, handshake_timeout: 100 ms,\n"
      "  frame_timeout: 2 s, write_timeout: 1 min, idle_timeout: 0.5 s}\n"
      "cache: {folder: /c, cap: 10 B, replies: 2 GiB}\n"
      "device: {kind: virtual, virtual_device: l4, ordinal: 2}\n"
      "tune: {background: false, evaluations: 5, time: 3 s, strategy: exhaustive, seed: 9,\n"
      "  queue: 0, retry_after: 1 min, when: always, patience: 5 s, memory: 3 MiB,\n"
      "  objective: p99, graph: true, warm_l2: true}\n"
      "fallback: {verify: false, verify_deadline: 250 ms}\n"
      "threads: {io: 2, workers: 3, compile: 4}\n"
      "log: {level: debug, file: /l}\n",
      "x.yaml"));
  EXPECT_EQ(shown(c),
            "\"/run/x.sock\"750 uid 1 uid 1000 3 2048 1048576 1536 7 100 2000 60000 500\n"
            "\"/c\" 10 2147483648\n1 l4 2\n0 5 3 exhaustive 9 0 60 always 5 3145728 p99, graph, "
            "warm L2\n0 0.25\n2 3 4\n"
            "debug \"/l\"\n");
}

TEST(Config, RefusesWithFileLineAndValue) {
  struct Case {
    std::string yaml, message;
  };
  for (const Case& c : {
           Case{
               "socket:\n  max_connections: many\n",
               "x.yaml:2: socket.max_connections is 'many', expected an integer from 1 to 1048576"},
           Case{"tune:\n  when: busy\n",
                "x.yaml:2: tune.when is 'busy', expected one of never, idle, always"},
           Case{"tune:\n  objective: speed\n",
                "x.yaml:2: tune.objective is 'speed', expected one of latency, throughput, p99, "
                "energy"},
           Case{"tune:\n  graph: stream\n",
                "x.yaml:2: tune.graph is 'stream', expected true or false"},
           Case{"socket:\n  max_connections: 0\n",
                "x.yaml:2: socket.max_connections is '0', expected an integer from 1 to 1048576"},
           Case{"socket:\n  directory_mode: '0800'\n",
                "x.yaml:2: socket.directory_mode is '0800', expected an octal mode from 0700 to "
                "0777"},
           Case{"socket:\n  directory_mode: '0600'\n",
                "x.yaml:2: socket.directory_mode is '0600', expected an octal mode from 0700 to "
                "0777"},
           Case{"socket:\n  allowed_uids: 5\n",
                "x.yaml:2: socket.allowed_uids is '5', expected a list of user ids"},
           Case{"socket:\n  allowed_uids:\n    - 1\n    - root\n",
                "x.yaml:4: socket.allowed_uids is 'root', expected a user id"},
           Case{"socket:\n  frame_timeout: 10\n",
                "x.yaml:2: socket.frame_timeout is '10', expected a time in ms, s or min"},
           Case{"cache:\n  cap: 4 GB\n",
                "x.yaml:2: cache.cap is '4 GB', expected a size in B, KiB, MiB or GiB"},
           Case{"cache:\n  cap: -1 GiB\n",
                "x.yaml:2: cache.cap is '-1 GiB', expected a size in B, KiB, MiB or GiB"},
           Case{"cache:\n  folder: [a]\n", "x.yaml:2: cache.folder is a list, expected a scalar"},
           Case{"device:\n  kind: fpga\n",
                "x.yaml:2: device.kind is 'fpga', expected one of auto, real, virtual"},
           Case{"tune:\n  background: yes\n",
                "x.yaml:2: tune.background is 'yes', expected true or false"},
           Case{"tune:\n  budget: 5\n",
                "x.yaml:2: unknown option 'budget', expected one of background, evaluations, time, "
                "strategy, seed, queue, retry_after, when, patience, memory, objective, graph, "
                "warm_l2"},
           Case{"\ntunes: {}\n",
                "x.yaml:2: unknown option 'tunes', expected one of socket, cache, device, tune, "
                "fallback, threads, log"},
           Case{"cache: fast\n", "x.yaml:1: cache is 'fast', expected a mapping"},
           Case{"- 1\n", "x.yaml:1: file is a list, expected a mapping"},
           Case{"cache: {folder: a\n", "x.yaml:2: end of map flow not found"},
       }) {
    auto config = Config::parse(c.yaml, "x.yaml");
    ASSERT_FALSE(config) << c.message;
    EXPECT_EQ(config.error().message, c.message);
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_EQ(Config::load("/nowhere/x.yaml").error().message, "/nowhere/x.yaml: cannot be read");
}

}  // namespace
}  // namespace tilewright::daemon
