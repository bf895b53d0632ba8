// A get of a known plan through the daemon, as a ratio to a raw echo over a Unix socket of the same
// bytes in the same run.
//
//   get/C/I/P   C clients at once, each with one request in flight; I: with a 40 KB image, which
//               comes as a memory file and is read; P: where threads run
//   echo        the same request and reply bytes, the image's in the stream, over a server that does
//               nothing but that (one thread, epoll), placed alike
//
// P is 0: wherever the kernel puts them; 1: clients and server on one core; 2: clients on one, the
// server on another. Of one client the kernel makes either 1 or 2, by chance for a whole run, and a
// core that has to be woken costs the echo several times the work. Daemon and client look again for a
// moment before they sleep (daemon/protocol/spin.h), so they are not woken at all where they do not
// share a core.
//
// p50_us and p99_us are of single requests; p50_ratio and p99_ratio are to the echo that was measured
// in turns with it.
#include <benchmark/benchmark.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tests/daemon/running_server.h"

namespace tilewright::daemon {
namespace {

using namespace std::chrono_literals;
using cache::testing::value_of;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kImageBytes = 40'000;

enum class Placement { kAny, kOneCore, kTwoCores };

void pin(pthread_t thread, Placement placement, bool server) {
  if (placement == Placement::kAny) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(server && placement == Placement::kTwoCores ? 1 : 0, &cores);
  pthread_setaffinity_np(thread, sizeof cores, &cores);
}

void read_exactly(int socket, char* data, std::size_t bytes) {
  while (bytes > 0) {
    ssize_t count = recv(socket, data, bytes, 0);
    if (count <= 0) throw std::runtime_error("echo: closed");
    data += count;
    bytes -= std::size_t(count);
  }
}

void write_all(int socket, const char* data, std::size_t bytes) {
  while (bytes > 0) {
    ssize_t count = send(socket, data, bytes, MSG_NOSIGNAL);
    if (count <= 0) throw std::runtime_error("echo: closed");
    data += count;
    bytes -= std::size_t(count);
  }
}

/// Answers every `request` bytes of a connection with `reply` bytes.
class EchoServer {
 public:
  EchoServer(int clients, std::size_t request, std::size_t reply, Placement placement)
      : request_(request), reply_(reply, 'x'), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (int i = 0; i < clients; ++i) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::runtime_error("socketpair");
      servers_.push_back(ends[0]);
      clients_.push_back(ends[1]);
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.fd = ends[0];
      epoll_ctl(epoll_, EPOLL_CTL_ADD, ends[0], &event);
    }
    thread_ = std::thread([this] { serve(); });
    pin(thread_.native_handle(), placement, true);
  }
  ~EchoServer() {
    for (int client : clients_) close(client);
    thread_.join();
    for (int server : servers_) close(server);
    close(epoll_);
  }
  int client(int index) const { return clients_[std::size_t(index)]; }
  std::size_t request_bytes() const { return request_; }
  std::size_t reply_bytes() const { return reply_.size(); }

 private:
  void serve() {
    std::size_t open = servers_.size();
    std::vector<char> buffer(request_);
    std::map<int, std::size_t> received;
    while (open > 0) {
      epoll_event events[16];
      int count = epoll_wait(epoll_, events, 16, -1);
      for (int i = 0; i < count; ++i) {
        int socket = events[i].data.fd;
        ssize_t bytes = recv(socket, buffer.data(), request_ - received[socket], 0);
        if (bytes <= 0) {
          epoll_ctl(epoll_, EPOLL_CTL_DEL, socket, nullptr);
          --open;
          continue;
        }
        received[socket] += std::size_t(bytes);
        if (received[socket] < request_) continue;
        received[socket] = 0;
        // A client reads its reply before it asks again, so this ends.
        write_all(socket, reply_.data(), reply_.size());
      }
    }
  }

  const std::size_t request_;
  const std::string reply_;
  const int epoll_;
  std::vector<int> servers_, clients_;
  std::thread thread_;
};

using Latencies = std::vector<double>;  ///< microseconds

double quantile(Latencies& latencies, double q) {
  auto at = latencies.begin() + std::ptrdiff_t(double(latencies.size() - 1) * q);
  std::nth_element(latencies.begin(), at, latencies.end());
  return *at;
}

/// `count` calls of `request(client)` by each of `clients` threads.
template <typename Request>
void measure(int clients, int count, Placement placement, Latencies& all, const Request& request) {
  std::vector<Latencies> each{std::size_t(clients)};
  std::vector<std::thread> threads;
  for (int client = 0; client < clients; ++client) {
    threads.emplace_back([&, client] {
      pin(pthread_self(), placement, false);
      for (int i = 0; i < count; ++i) {
        auto begin = Clock::now();
        request(client);
        each[std::size_t(client)].push_back(
            std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Latencies& some : each) all.insert(all.end(), some.begin(), some.end());
}

class Daemon {
 public:
  explicit Daemon(Placement placement) {
    server_.config.tune.background = false;
    server_.config.io_threads = 1;  // as configs/daemon/default.yaml has it
    server_.planner.image_bytes = kImageBytes / 2;
    server_.planner.served.virtual_gpu = true;  // the PTX is what is sent
    server_.start();
    pin(server_.thread.native_handle(), placement, true);
  }
  protocol::Channel connect() { return server_.connect(); }

 private:
  testing::RunningServer server_;
};

void get(benchmark::State& state) {
  const int clients = int(state.range(0));
  const bool image = state.range(1) != 0;
  const auto placement = Placement(state.range(2));
  Daemon daemon(placement);
  protocol::Get get{testing::sample_problem(16), image, {}};
  std::vector<protocol::Channel> channels;
  for (int i = 0; i < clients; ++i) channels.push_back(daemon.connect());
  auto first = value_of(channels[0].call(get, 10s));
  const auto& plan = std::get<protocol::Plan>(first.message);
  std::size_t reply = protocol::encode(1, first.message).size() + plan.image_bytes;
  EchoServer echo(clients, protocol::encode(1, get).size(), reply, placement);

  std::vector<std::vector<char>> buffers(std::size_t(clients),
                                         std::vector<char>(reply + kImageBytes));
  auto ask_daemon = [&](int client) {
    auto answer = value_of(channels[std::size_t(client)].call(get, 10s));
    if (answer.file) {
      auto bytes = std::get<protocol::Plan>(answer.message).image_bytes;
      auto mapped = value_of(protocol::MappedFile::map(answer.file, bytes));
      std::memcpy(buffers[std::size_t(client)].data(), mapped.bytes().data(), bytes);
    }
  };
  std::string request(echo.request_bytes(), 'x');
  auto ask_echo = [&](int client) {
    write_all(echo.client(client), request.data(), request.size());
    read_exactly(echo.client(client), buffers[std::size_t(client)].data(), echo.reply_bytes());
  };
  // In turns, so that whatever else this host does meets both.
  const int count = std::max(50, 2000 / clients);
  Latencies daemon_us, echo_us;
  measure(clients, count, placement, daemon_us, ask_daemon);
  measure(clients, count, placement, echo_us, ask_echo);
  daemon_us.clear();
  echo_us.clear();
  for (auto _ : state) {
    measure(clients, count, placement, daemon_us, ask_daemon);
    measure(clients, count, placement, echo_us, ask_echo);
  }
  state.counters["p50_us"] = quantile(daemon_us, 0.5);
  state.counters["p99_us"] = quantile(daemon_us, 0.99);
  state.counters["echo_p50_us"] = quantile(echo_us, 0.5);
  state.counters["echo_p99_us"] = quantile(echo_us, 0.99);
  state.counters["p50_ratio"] = quantile(daemon_us, 0.5) / quantile(echo_us, 0.5);
  state.counters["p99_ratio"] = quantile(daemon_us, 0.99) / quantile(echo_us, 0.99);
  state.counters["reply_bytes"] = double(reply);
}
BENCHMARK(get)
    ->ArgNames({"clients", "image", "placement"})
    ->ArgsProduct({{1}, {0, 1}, {0, 1, 2}})
    ->ArgsProduct({{64}, {0, 1}, {0}})
    ->Iterations(10)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tilewright::daemon

BENCHMARK_MAIN();
