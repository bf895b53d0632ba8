/// Another process on a shared virtual GPU, that uses its memory and its time as it is told.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace tilewright::vgpu::testing {

class Occupant {
 public:
  /// On the board of $TILEWRIGHT_VGPU_SHARED, as `device_file` describes the device; empty: the H200.
  explicit Occupant(const std::string& device_file = "") {
    int in[2], out[2];
    if (::pipe(in) != 0 || ::pipe(out) != 0) ADD_FAILURE() << "no pipe";
    std::fflush(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      for (const int end : {in[0], in[1], out[0], out[1]}) ::close(end);
      if (!device_file.empty()) ::setenv("TILEWRIGHT_VGPU_DEVICE", device_file.c_str(), 1);
      const char* program = TILEWRIGHT_BINARY_DIR "/bin/vgpu_occupant";
      ::execl(program, program, nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = ::fdopen(out[0], "r");
    EXPECT_EQ(answer(), "ok");
  }
  ~Occupant() {
    ::close(in_);
    std::fclose(out_);
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Occupant(const Occupant&) = delete;
  Occupant& operator=(const Occupant&) = delete;

  pid_t pid() const { return pid_; }
  /// The answer to "memory MIB" or "busy PERCENT".
  std::string tell(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(::write(in_, text.data(), text.size()), ssize_t(text.size()));
    return answer();
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  std::string answer() {
    char text[128] = {};
    if (!std::fgets(text, sizeof text, out_)) return "ended";
    std::string line = text;
    while (!line.empty() && line.back() == '\n') line.pop_back();
    return line;
  }

  pid_t pid_ = -1;
  int in_ = -1;
  FILE* out_ = nullptr;
};

}  // namespace tilewright::vgpu::testing
