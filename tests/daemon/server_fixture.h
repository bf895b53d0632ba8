/// A running server, and what tests say to it.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "tests/daemon/running_server.h"

namespace tilewright::daemon::testing {

class ServerTest : public ::testing::Test {
 protected:
  template <typename T>
  T call(protocol::Channel& channel, const protocol::Message& message) {
    auto answer = cache::testing::value_of(channel.call(message, std::chrono::seconds(10)));
    if (!std::holds_alternative<T>(answer.message))
      throw std::runtime_error("answered with " + std::string(name_of(answer.message)));
    file_ = std::move(answer.file);
    return std::get<T>(std::move(answer.message));
  }
  double counter(const std::string& name) {
    protocol::Channel channel = server_.connect();
    for (const auto& counter : call<protocol::Statistics>(channel, protocol::Stats{}).counters)
      if (counter.name == name) return counter.value;
    return -1;
  }
  /// A socket that speaks no protocol.
  protocol::FileDescriptor raw() {
    protocol::FileDescriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, server_.config.socket.path.c_str());
    if (connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("connect");
    timeval limit{5, 0};
    setsockopt(client.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return client;
  }
  static void put(const protocol::FileDescriptor& client, const std::string& bytes) {
    (void)!send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// All frames until the other side closes, rendered: "done@1 failure@0:message closed".
  static std::string read_all(const protocol::FileDescriptor& client) {
    std::string bytes, text;
    char part[4096];
    ssize_t count;
    while ((count = recv(client.get(), part, sizeof part, 0)) > 0) bytes.append(part, count);
    while (bytes.size() >= sizeof(protocol::FrameHeader)) {
      auto header = cache::testing::value_of(protocol::decode_header(bytes, 1 << 20));
      std::string body = bytes.substr(sizeof header, header.bytes);
      auto message = cache::testing::value_of(protocol::decode_body(body));
      text += std::string(name_of(message)) + "@" + std::to_string(header.id);
      if (auto* failure = std::get_if<protocol::Failure>(&message))
        text += ":" + failure->error.message;
      text += " ";
      bytes.erase(0, sizeof header + header.bytes);
    }
    return text + (count == 0 || errno == ECONNRESET ? "closed" : "open");
  }

  RunningServer server_;
  protocol::FileDescriptor file_;
};

}  // namespace tilewright::daemon::testing
