#include "client/cli/cache_access.h"

#include <fmt/format.h>

#include <sstream>

#include "client/cli/session.h"

namespace tilewright::cli {
namespace {

constexpr std::chrono::milliseconds kConnectTimeout{5'000}, kTransferTimeout{60'000};
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

Result<CacheAccess> CacheAccess::open(const Session& session) {
  CacheAccess access;
  auto store = session.store();
  if (store) {
    access.store_ = std::move(*store);
    return access;
  }
  if (store.error().code != ErrorCode::kBusy || session.options.no_daemon)
    return fail(std::move(store.error()));
  // Whoever holds the store is the daemon, or a command that ends before long.
  auto daemon = protocol::Channel::connect(session.socket(), "tilewright", kConnectTimeout,
                                           session.options.daemon_uid);
  if (!daemon && daemon.error().code == ErrorCode::kPermission)
    return fail(std::move(daemon.error()));
  if (!daemon) return fail(std::move(store.error()));
  const std::string& owned = daemon->welcome().cache;
  std::error_code ignored;
  if (!std::filesystem::equivalent(owned, session.cache_folder(), ignored)) {
    return fail(
        with_context(std::move(store.error()),
                     fmt::format("the daemon at {} owns {}", session.socket().string(), owned)));
  }
  access.store_ = cache::memory_store();
  access.daemon_ = std::move(*daemon);
  return access;
}

Result<CacheAccess> CacheAccess::for_writing(const Session& session) { return open(session); }

Result<CacheAccess> CacheAccess::for_reading(const Session& session) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto access, open(session));
  if (access.daemon_) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto lines, daemon_export(*access.daemon_));
    std::istringstream in(std::move(lines));
    TILEWRIGHT_TRY(cache::import_lines(*access.store_, in, "the daemon's export"));
  }
  return access;
}

Result<void> CacheAccess::commit() {
  if (!daemon_) return {};
  std::ostringstream out;
  TILEWRIGHT_TRY(cache::export_lines(*store_, out));
  auto lines = std::move(out).str();
  if (lines.empty()) return {};
  std::string_view rest = lines;
  std::uint64_t id = 0;
  while (rest.size() > kPieceBytes) {
    protocol::Import piece{std::string(rest.substr(0, kPieceBytes)), false};
    rest.remove_prefix(kPieceBytes);
    if (id == 0) {
      TILEWRIGHT_ASSIGN_OR_RETURN(id, daemon_->send(piece, kTransferTimeout));
    } else {
      TILEWRIGHT_TRY(daemon_->send_as(id, piece, kTransferTimeout));
    }
  }
  protocol::Import last{std::string(rest), true};
  if (id == 0) {
    TILEWRIGHT_TRY(daemon_->call(last, kTransferTimeout));
    return {};
  }
  TILEWRIGHT_TRY(daemon_->send_as(id, last, kTransferTimeout));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, daemon_->receive(kTransferTimeout));
  if (auto* failure = std::get_if<protocol::Failure>(&answer.message))
    return fail(std::move(failure->error));
  return {};
}

Result<std::string> daemon_export(protocol::Channel& daemon) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, daemon.call(protocol::Export{}, kTransferTimeout));
  auto* exported = std::get_if<protocol::Exported>(&answer.message);
  if (!exported)
    return fail(ErrorCode::kCorrupt, "the daemon answered an export with another frame");
  TILEWRIGHT_ASSIGN_OR_RETURN(auto mapping,
                              protocol::MappedFile::map(answer.file, exported->bytes));
  return std::string(mapping.bytes());
}

}  // namespace tilewright::cli
