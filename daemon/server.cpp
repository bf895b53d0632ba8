#include "daemon/server.h"

#include <fcntl.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <mutex>
#include <set>
#include <thread>

#include "daemon/protocol/spin.h"
#include "daemon/session.h"
#include "daemon/socket_file.h"

namespace tilewright::daemon {

namespace asio = boost::asio;
using Unix = asio::local::stream_protocol;

struct Server::State {
  State(const Config& config, Service& service, SocketFile file)
      : config(config),
        service(service),
        file(std::move(file)),
        io(config.io_threads),
        workers(std::size_t(config.worker_threads)),
        acceptor(asio::make_strand(io)),
        host{config, service, workers, [this] { stop(); }} {}

  /// One thread's share of the I/O, until the end.
  void serve();
  asio::awaitable<void> accept();
  void refuse(Unix::socket socket, const Error& error);
  void stop();

  const Config& config;
  Service& service;
  SocketFile file;
  asio::io_context io;
  asio::thread_pool workers;
  Unix::acceptor acceptor;  ///< on a strand of its own, as accept() and the beginning of stop()
  SessionHost host;
  std::mutex mutex;  ///< guards what follows
  std::set<std::shared_ptr<Session>> sessions;
  bool stopped = false;
};

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::open(const Config& config, Service& service,
                                             SocketFile file) {
  TILEWRIGHT_TRY(file.listen());
  auto state = std::make_unique<State>(config, service, std::move(file));
  // The acceptor owns a descriptor of its own, so that closing it leaves the file to SocketFile.
  int descriptor = fcntl(state->file.descriptor(), F_DUPFD_CLOEXEC, 0);
  boost::system::error_code error;
  state->acceptor.assign(Unix(), descriptor, error);
  if (error) return fail(ErrorCode::kIo, "socket: " + error.message());
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

const std::filesystem::path& Server::socket() const { return state_->file.path(); }

void Server::stop() { state_->stop(); }

void Server::State::stop() {
  asio::post(acceptor.get_executor(), [this] {
    boost::system::error_code ignored;
    acceptor.close(ignored);
    file.close();
    std::set<std::shared_ptr<Session>> open;
    {
      std::lock_guard lock(mutex);
      stopped = true;
      open = sessions;
    }
    for (const auto& session : open) session->close();
    // Sessions have what they were answered in their sockets by now; whatever else is pending is
    // given up.
    asio::post(io, [this] { io.stop(); });
  });
}

void Server::State::refuse(Unix::socket socket, const Error& error) {
  ++host.refused;
  spdlog::warn("client refused: {}", error.message);
  std::string frame = protocol::encode(0, protocol::Failure{error});
  // The buffer of a fresh socket takes it whole.
  (void)!::send(socket.native_handle(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

asio::awaitable<void> Server::State::accept() {
  std::uint64_t number = 0;
  for (;;) {
    asio::any_io_executor strand = asio::make_strand(io);
    auto [error, socket] =
        co_await acceptor.async_accept(strand, asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::operation_aborted || !acceptor.is_open()) co_return;
    if (error) {
      // Out of descriptors, or a client that left at once: others may still be served.
      spdlog::error("accept: {}", error.message());
      asio::steady_timer pause(acceptor.get_executor(), std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
      continue;
    }
    if (auto allowed = check_peer(socket.native_handle(), config.socket); !allowed) {
      refuse(std::move(socket), allowed.error());
      continue;
    }
    std::shared_ptr<Session> session;
    {
      std::lock_guard lock(mutex);
      if (stopped) co_return;
      if (sessions.size() < std::size_t(config.socket.max_connections)) {
        session = std::make_shared<Session>(std::move(socket), host, ++number);
        sessions.insert(session);
      }
    }
    if (!session) {
      refuse(std::move(socket), {ErrorCode::kBusy,
                                 "the daemon has " + std::to_string(config.socket.max_connections) +
                                     " connections, which is its limit",
                                 {}});
      continue;
    }
    ++host.accepted;
    ++host.open;
    session->start([this, weak = std::weak_ptr<Session>(session)] {
      --host.open;
      std::lock_guard lock(mutex);
      if (auto ended = weak.lock()) sessions.erase(ended);
    });
  }
}

void Server::State::serve() {
  using Clock = std::chrono::steady_clock;
  protocol::Spin spin;
  while (io.run_one() > 0) {
    io.poll();
    // A client that had its answer may ask again at once.
    while (spin.worthwhile()) {
      bool found = false;
      for (auto until = Clock::now() + protocol::Spin::kTime; !found && Clock::now() < until;) {
        found = io.poll() > 0;
        if (!found) sched_yield();
      }
      if (!found) {
        spin.missed();
        break;
      }
      spin.found();
    }
  }
}

void Server::run(bool signals) {
  asio::signal_set caught(state_->io);
  if (signals) {
    caught.add(SIGTERM);
    caught.add(SIGINT);
    caught.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      spdlog::info("signal {}: stopping", signal);
      stop();
    });
  }
  auto body = [this]() -> asio::awaitable<void> { return state_->accept(); };
  asio::co_spawn(state_->acceptor.get_executor(), body, asio::detached);
  std::vector<std::thread> threads;
  for (int i = 1; i < state_->config.io_threads; ++i)
    threads.emplace_back([this] { state_->serve(); });
  state_->serve();
  for (std::thread& thread : threads) thread.join();
  // First the tunes, which store what they found; then what the workers still do for clients.
  state_->service.stop();
  state_->workers.join();
  std::lock_guard lock(state_->mutex);
  state_->sessions.clear();
}

}  // namespace tilewright::daemon
