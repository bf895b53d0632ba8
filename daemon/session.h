/// One client. All of it runs on the strand of its socket; what blocks is done by the workers, which
/// post their answers back. Frames out are queued, so that a notification never cuts a reply in two.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "daemon/config.h"
#include "daemon/protocol/messages.h"
#include "daemon/service.h"

namespace tilewright::daemon {

/// What the sessions of a server share.
struct SessionHost {
  const Config& config;
  Service& service;
  boost::asio::thread_pool& workers;
  std::function<void()> shutdown;
  std::atomic<std::uint64_t> open{0}, accepted{0}, refused{0}, malformed{0}, expired{0};

  protocol::Statistics statistics() const;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  using Socket = boost::asio::local::stream_protocol::socket;

  Session(Socket socket, SessionHost& host, std::uint64_t number);
  ~Session();

  /// `ended` is called once, on the strand.
  void start(std::function<void()> ended);
  /// From any thread.
  void close();

 private:
  using Clock = std::chrono::steady_clock;

  struct Outgoing {
    protocol::FrameHeader header;
    std::string_view body;
    std::shared_ptr<const void> owner;  ///< of `body` and `file`
    int file = -1;
    std::size_t sent = 0;
  };

  boost::asio::awaitable<void> run();
  boost::asio::awaitable<Result<void>> serve();
  /// Handles the frames that the buffer holds. An error ends the session.
  Result<void> take_frames();
  Result<void> handle(std::uint64_t id, protocol::Message& message);

  void on(std::uint64_t id, protocol::Get& get);
  void on(std::uint64_t id, protocol::Subscribe& subscribe);
  void on(std::uint64_t id, protocol::Unsubscribe& unsubscribe);
  void on(std::uint64_t id, protocol::Tune& tune);
  void on(std::uint64_t id, protocol::Cancel& cancel);
  void on(std::uint64_t id, protocol::Import& import);
  void on(std::uint64_t id, protocol::Export&);
  void on(std::uint64_t id, protocol::Stats&);
  void on(std::uint64_t id, protocol::ListTrials& list);
  void on(std::uint64_t id, protocol::GetTrial& get);

  /// Runs `work` on a worker and `then(result)` back on the strand.
  template <typename Work, typename Then>
  void offload(Work work, Then then);
  /// Runs it on the strand, from any thread; not at all when the session has ended.
  void on_strand(std::function<void()> task);
  bool begin_request(std::uint64_t id);
  bool claim_id(std::uint64_t id);
  void subscribed(std::uint64_t id, const Result<Service::Subscription>& granted);

  void send(std::uint64_t id, const protocol::Message& message);
  void send_reply(std::uint64_t id, std::shared_ptr<const Reply> reply, bool with_images);
  void send_exported(std::uint64_t id, Result<Service::ExportedFile> exported);
  void send_failure(std::uint64_t id, const Error& error);
  void enqueue(Outgoing outgoing);
  void flush();
  bool write_some(Outgoing& front);

  void set_deadlines(Clock::time_point read, Clock::time_point write);
  void arm();
  void end();

  Socket socket_;
  SessionHost& host_;
  const std::uint64_t number_;
  std::function<void()> ended_;
  std::string buffer_;
  std::size_t filled_ = 0;  ///< bytes of buffer_ that have been received; it begins with a header

  std::deque<Outgoing> queue_;
  std::size_t queued_bytes_ = 0;
  bool waiting_to_write_ = false, closing_ = false, closed_ = false;

  boost::asio::steady_timer timer_;
  Clock::time_point read_deadline_, write_deadline_, armed_;

  bool greeted_ = false;
  int pending_ = 0;
  struct RunningTune {
    std::uint64_t ticket = 0;  ///< 0: a worker is still asking for it
    bool cancelled = false;
  };
  std::map<std::uint64_t, RunningTune> tunes_;  ///< by request id
  /// Request id -> subscription; 0: a worker is still asking for it.
  std::map<std::uint64_t, std::uint64_t> subscriptions_;
  std::map<std::uint64_t, std::string> imports_;
  std::size_t import_bytes_ = 0;
};

}  // namespace tilewright::daemon
