/// A device that several processes share: $TILEWRIGHT_VGPU_SHARED names a file, the board, that each
/// of them maps. On it are what memory each has taken, and when its modelled work occupies the device.
///
/// Work occupies the device in wall time from when it is executed, one piece after the other, for its
/// modelled duration; what is more than a second ahead of the clock is forgotten. Two processes that
/// have work at one time take turns in fine slices: the work of one is longer by what the other still
/// has, at most by its own duration.
///
/// All locks are of open files, so whatever a process held is free once it has died, and its place on
/// the board with it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jit/virtual_gpu/memory.h"

namespace tilewright::vgpu {

/// Thread-safe.
class Board final : public SharedCapacity {
 public:
  /// Makes the file where it is not there. Errors: kIo; kInvalidArgument (no board, or of a device
  /// with other memory that processes use); kBusy (no place is free).
  static Result<std::shared_ptr<Board>> open(const std::string& file, std::uint64_t capacity);
  ~Board() override;
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  /// Of the file, whatever it is called: other boards that are there now have others.
  std::string identity() const;

  /// Errors: kOutOfMemory names what is free and who has the rest.
  Result<void> take(std::uint64_t bytes) override;
  void give_back(std::uint64_t bytes) override;
  /// By all processes.
  std::uint64_t used();

  /// Work of this process. Returns by how much it is longer since others have work as well.
  double occupy(double duration_us);

  struct Process {
    std::uint32_t pid = 0;
    std::uint64_t used = 0;  ///< bytes
    double busy = 0;         ///< share of the window that its work occupied
    bool ours = false;
  };
  /// `window_us`: of the past, at most a second. This process is the first.
  std::vector<Process> processes(double window_us = kMostWindow_us);
  static constexpr double kMostWindow_us = 1e6;

 private:
  struct File;
  struct Slot;
  class Locked;

  Board(int file, std::string name) : file_(file), name_(std::move(name)) {}
  Result<void> map(std::uint64_t capacity);
  Result<void> take_place();
  /// Whether somebody has this place. Forgets what a process left that has died.
  bool is_live(int place);
  template <typename Body>
  void for_live(Body&& body);

  std::mutex mutex_;
  int file_ = -1;
  std::string name_;
  File* board_ = nullptr;
  int place_ = -1;
};

/// Whether another process had work within the last second. No board: no.
bool others_work(const std::shared_ptr<Board>& board);

}  // namespace tilewright::vgpu
