/// The cache of this host: its store or, where a daemon owns that, what the daemon exchanges.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "daemon/protocol/channel.h"
#include "search/failed_trials.h"

namespace tilewright::cli {

class Session;

class CacheAccess {
 public:
  /// For writing: the store, or the daemon that owns it. Of what the daemon holds, nothing is seen.
  static Result<CacheAccess> for_writing(const Session& session);
  /// For reading: the store, or what the daemon exports into one in memory.
  static Result<CacheAccess> for_reading(const Session& session);
  /// For what either is asked, as below.
  static Result<CacheAccess> open(const Session& session);

  cache::Store& store() { return *store_; }
  /// Set where a daemon owns the cache.
  std::optional<protocol::Channel>& daemon() { return daemon_; }

  /// Into the store, or through the daemon. Errors name the line of `file`.
  Result<cache::ImportCounts> import(std::istream& in, const std::string& file,
                                     const Digest& generator);
  Result<cache::StoreStatistics> statistics();
  /// Those whose id begins so.
  Result<std::vector<search::FailedTrial>> failed_trials(const std::string& prefix);
  /// Whole, with what a replay needs. Errors: kNotFound.
  Result<search::CandidateReport> trial(const std::string& id);

 private:
  std::unique_ptr<cache::Store> store_;
  std::optional<protocol::Channel> daemon_;
};

/// The daemon's answer to an export: JSON lines.
Result<std::string> daemon_export(protocol::Channel& daemon);

}  // namespace tilewright::cli
