#include "client/cli/cache_access.h"

#include <fmt/format.h>

#include <sstream>

#include "client/cli/session.h"
#include "search/journal.h"

namespace tilewright::cli {
namespace {

constexpr std::chrono::milliseconds kConnectTimeout{5'000}, kTransferTimeout{60'000};
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

Result<std::string> exported_lines(protocol::Channel& daemon, const protocol::Message& request) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, daemon.call(request, kTransferTimeout));
  auto* exported = std::get_if<protocol::Exported>(&answer.message);
  if (!exported)
    return fail(ErrorCode::kCorrupt, fmt::format("the daemon answered {} with another frame",
                                                 protocol::name_of(request)));
  if (exported->bytes == 0) return std::string();
  TILEWRIGHT_ASSIGN_OR_RETURN(auto mapping,
                              protocol::MappedFile::map(answer.file, exported->bytes));
  return std::string(mapping.bytes());
}

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

Result<cache::ImportCounts> CacheAccess::import(std::istream& in, const std::string& file,
                                                const Digest& generator) {
  if (!daemon_) return cache::import_lines(*store_, in, file, generator);
  std::optional<std::uint64_t> id;
  for (bool last = false; !last;) {
    protocol::Import piece;
    piece.bytes.resize(kPieceBytes);
    in.read(piece.bytes.data(), std::streamsize(piece.bytes.size()));
    piece.bytes.resize(std::size_t(in.gcount()));
    if (in.bad()) return fail(ErrorCode::kIo, fmt::format("{}: cannot be read", file));
    piece.last = last = in.eof();
    if (id) {
      TILEWRIGHT_TRY(daemon_->send_as(*id, piece, kTransferTimeout));
    } else {
      TILEWRIGHT_ASSIGN_OR_RETURN(id, daemon_->send(piece, kTransferTimeout));
    }
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, daemon_->receive(kTransferTimeout));
  if (auto* failure = std::get_if<protocol::Failure>(&answer.message)) {
    // The daemon knows the lines by the name of the request.
    std::string& message = failure->error.message;
    if (message.starts_with("import:")) message.replace(0, 6, file);
    return fail(std::move(failure->error));
  }
  auto* done = std::get_if<protocol::Imported>(&answer.message);
  if (!done) return fail(ErrorCode::kCorrupt, "the daemon answered an import with another frame");
  return cache::ImportCounts{done->taken, done->kept, done->other_generator, done->without_images,
                             done->items - done->taken};
}

Result<cache::StoreStatistics> CacheAccess::statistics() {
  if (!daemon_) return store_->statistics();
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, daemon_->call(protocol::Stats{}, kTransferTimeout));
  auto* counters = std::get_if<protocol::Statistics>(&answer.message);
  if (!counters) return fail(ErrorCode::kCorrupt, "the daemon answered stats with another frame");
  auto value = [&](const char* name) -> std::size_t {
    for (const protocol::Counter& counter : counters->counters)
      if (counter.name == name) return std::size_t(counter.value);
    return 0;
  };
  cache::StoreStatistics statistics;
  statistics.records = value("records");
  statistics.images = value("images");
  statistics.trials = value("trials");
  statistics.bytes = value("cache_bytes");
  statistics.trial_bytes = value("trial_bytes");
  statistics.cap_bytes = value("cache_cap_bytes");
  statistics.evicted_images = value("evicted_images");
  statistics.evicted_trials = value("evicted_trials");
  statistics.damaged = value("damaged");
  return statistics;
}

Result<std::vector<search::FailedTrial>> CacheAccess::failed_trials(const std::string& prefix) {
  if (!daemon_) return search::failed_trials(*store_, prefix);
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string lines,
                              exported_lines(*daemon_, protocol::ListTrials{prefix}));
  return search::parse_failed_trials(lines);
}

Result<search::CandidateReport> CacheAccess::trial(const std::string& id) {
  if (!daemon_) {
    TILEWRIGHT_ASSIGN_OR_RETURN(const auto stored, store_->trial(id));
    if (!stored) return fail(ErrorCode::kNotFound, fmt::format("no trial {} is known", id));
    return search::parse_trial_body(stored->body);
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, daemon_->call(protocol::GetTrial{id}, kTransferTimeout));
  auto* trial = std::get_if<protocol::TrialBody>(&answer.message);
  if (!trial) return fail(ErrorCode::kCorrupt, "the daemon answered get_trial with another frame");
  return search::parse_trial_body(trial->body);
}

Result<std::string> daemon_export(protocol::Channel& daemon) {
  return exported_lines(daemon, protocol::Export{});
}

}  // namespace tilewright::cli
