#include "jit/virtual_gpu/driver/board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace tilewright::vgpu {
namespace {

constexpr char kMagic[16] = "tilewright vgpu";  // and a zero
constexpr std::uint64_t kVersion = 1;
constexpr int kPlaces = 64;
// Of the time line: a second of the past, and one of work that is ahead of the clock.
constexpr std::int64_t kBucket_ns = 10'000'000;
constexpr std::int64_t kBuckets = 256;
constexpr std::int64_t kMostAhead_ns = 1'000'000'000;
// Locks are bytes of the file: the board's, then one of each place, held by whoever has it.
constexpr off_t kBoardLock = 0, kFirstPlaceLock = 1;

struct flock range(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

bool set_lock(int file, int command, short type, off_t byte) {
  struct flock lock = range(type, byte);
  int result = 0;
  do {
    result = ::fcntl(file, command, &lock);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

bool is_locked_by_another(int file, off_t byte) {
  struct flock lock = range(F_WRLCK, byte);
  return ::fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/// The same clock in all processes.
std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

Error io_error(const char* what, const std::string& name) {
  return {
      ErrorCode::kIo, fmt::format("{}: cannot be {}: {}", name, what, std::strerror(errno)), {}};
}

}  // namespace

struct Board::Slot {
  std::uint32_t pid;  ///< 0: nobody
  std::uint64_t used;
  std::int64_t until_ns;  ///< its work is done
  struct Bucket {
    std::int64_t number;  ///< its begin, in kBucket_ns
    std::int64_t busy_ns;
  } buckets[kBuckets];

  void add(std::int64_t begin_ns, std::int64_t end_ns) {
    while (begin_ns < end_ns) {
      const std::int64_t number = begin_ns / kBucket_ns;
      const std::int64_t stop = std::min(end_ns, (number + 1) * kBucket_ns);
      Bucket& bucket = buckets[number % kBuckets];
      if (bucket.number != number) bucket = {number, 0};
      bucket.busy_ns += stop - begin_ns;
      begin_ns = stop;
    }
  }

  /// Of the buckets that have begun; the first counts by its part in the window.
  std::int64_t busy_ns(std::int64_t begin_ns, std::int64_t end_ns) const {
    std::int64_t busy = 0;
    for (const Bucket& bucket : buckets) {
      const std::int64_t from = bucket.number * kBucket_ns, to = from + kBucket_ns;
      const std::int64_t overlap = std::min(to, end_ns) - std::max(from, begin_ns);
      if (overlap > 0) busy += bucket.busy_ns * overlap / kBucket_ns;
    }
    return busy;
  }
};

struct Board::File {
  char magic[16];
  std::uint64_t version, capacity;
  Slot slots[kPlaces];
};

/// Alone on the board, for a scope.
class Board::Locked {
 public:
  explicit Locked(Board& board) : board_(board), lock_(board.mutex_) {
    set_lock(board.file_, F_OFD_SETLKW, F_WRLCK, kBoardLock);
  }
  ~Locked() { set_lock(board_.file_, F_OFD_SETLK, F_UNLCK, kBoardLock); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Board& board_;
  std::lock_guard<std::mutex> lock_;
};

Result<std::shared_ptr<Board>> Board::open(const std::string& file, std::uint64_t capacity) {
  const int opened = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (opened < 0) return fail(io_error("opened", file));
  std::shared_ptr<Board> board(new Board(opened, file));
  const Locked locked(*board);
  TILEWRIGHT_TRY(board->map(capacity));
  TILEWRIGHT_TRY(board->take_place());
  return board;
}

Result<void> Board::map(std::uint64_t capacity) {
  struct stat status {};
  if (::fstat(file_, &status) != 0) return fail(io_error("read", name_));
  const bool fresh = status.st_size == 0;
  if (!fresh && std::size_t(status.st_size) != sizeof(File))
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} has {} bytes, expected a board of {}",
                                                         name_, status.st_size, sizeof(File)));
  if (fresh && ::ftruncate(file_, sizeof(File)) != 0) return fail(io_error("written", name_));
  void* mapped = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) return fail(io_error("mapped", name_));
  board_ = static_cast<File*>(mapped);
  // All zeros as well: whoever made it died before it was a board.
  const bool empty = board_->version == 0 && board_->magic[0] == 0;
  if (!empty &&
      (std::memcmp(board_->magic, kMagic, sizeof kMagic) != 0 || board_->version != kVersion))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is no board of version {}", name_, kVersion));
  if (empty) {
    std::memcpy(board_->magic, kMagic, sizeof kMagic);
    board_->version = kVersion;
  }
  if (board_->capacity != capacity) {
    for (int place = 0; place < kPlaces; ++place)
      if (is_live(place))
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} is of a device of {} bytes that process {} uses, expected {}",
                                name_, board_->capacity, board_->slots[place].pid, capacity));
    board_->capacity = capacity;
  }
  return {};
}

Result<void> Board::take_place() {
  for (int place = 0; place < kPlaces; ++place) {
    if (!set_lock(file_, F_OFD_SETLK, F_WRLCK, kFirstPlaceLock + place)) continue;
    place_ = place;
    board_->slots[place] = {};
    board_->slots[place].pid = std::uint32_t(::getpid());
    return {};
  }
  return fail(ErrorCode::kBusy,
              fmt::format("{} has no free place: {} processes use the device", name_, kPlaces));
}

Board::~Board() {
  if (board_ != nullptr) {
    // A forked child has no place of its own, and leaves its parent's.
    if (place_ >= 0 && board_->slots[place_].pid == std::uint32_t(::getpid())) {
      const Locked locked(*this);
      board_->slots[place_] = {};
    }
    ::munmap(board_, sizeof(File));
  }
  ::close(file_);  // and all locks with it
}

bool Board::is_live(int place) {
  if (board_->slots[place].pid == 0) return false;
  if (place == place_ || is_locked_by_another(file_, kFirstPlaceLock + place)) return true;
  board_->slots[place] = {};
  return false;
}

template <typename Body>
void Board::for_live(Body&& body) {
  for (int place = 0; place < kPlaces; ++place)
    if (is_live(place)) body(board_->slots[place], place == place_);
}

std::string Board::identity() const {
  struct stat status {};
  if (::fstat(file_, &status) != 0) return name_;
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

Result<void> Board::take(std::uint64_t bytes) {
  const Locked locked(*this);
  std::uint64_t used = 0;
  std::string others;
  for_live([&](const Slot& slot, bool ours) {
    used += slot.used;
    if (!ours && slot.used > 0)
      others +=
          fmt::format("{}{} bytes process {}", others.empty() ? "" : ", ", slot.used, slot.pid);
  });
  const std::uint64_t free = board_->capacity - std::min(used, board_->capacity);
  if (bytes > free)
    return fail(
        ErrorCode::kOutOfMemory,
        fmt::format("allocation of {} bytes, {} of {} are free{}{}", bytes, free, board_->capacity,
                    others.empty() ? "" : ", of the others has ", others));
  board_->slots[place_].used += bytes;
  return {};
}

void Board::give_back(std::uint64_t bytes) {
  const Locked locked(*this);
  Slot& slot = board_->slots[place_];
  slot.used -= std::min(slot.used, bytes);
}

std::uint64_t Board::used() {
  const Locked locked(*this);
  std::uint64_t used = 0;
  for_live([&](const Slot& slot, bool) { used += slot.used; });
  return std::min(used, board_->capacity);
}

double Board::occupy(double duration_us) {
  if (!(duration_us > 0)) return 0;
  const Locked locked(*this);
  const std::int64_t now = now_ns();
  const auto duration = std::int64_t(std::min(duration_us * 1e3, 1e15));
  std::int64_t longer = 0;
  for_live([&](const Slot& slot, bool ours) {
    if (!ours) longer += std::clamp<std::int64_t>(slot.until_ns - now, 0, duration);
  });
  Slot& slot = board_->slots[place_];
  const std::int64_t begin = std::max(now, slot.until_ns);
  const std::int64_t end = std::min(begin + duration, now + kMostAhead_ns);
  slot.add(begin, end);
  slot.until_ns = std::max(begin, end);
  return double(longer) / 1e3;
}

std::vector<Board::Process> Board::processes(double window_us) {
  const Locked locked(*this);
  const std::int64_t now = now_ns();
  const auto window = std::int64_t(std::clamp(window_us, 1e3, kMostWindow_us) * 1e3);
  std::vector<Process> result;
  for_live([&](const Slot& slot, bool ours) {
    const double busy = double(slot.busy_ns(now - window, now)) / double(window);
    const Process process{slot.pid, slot.used, std::min(busy, 1.0), ours};
    result.insert(ours ? result.begin() : result.end(), process);
  });
  return result;
}

bool others_work(const std::shared_ptr<Board>& board) {
  if (!board) return false;
  const std::vector<Board::Process> processes = board->processes();
  return std::any_of(processes.begin(), processes.end(), [](const Board::Process& process) {
    return !process.ours && process.busy > 0;
  });
}

}  // namespace tilewright::vgpu
