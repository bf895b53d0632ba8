/// Tuning by the daemon that owns the cache, so that nobody else tunes the same at once and every
/// trial is journaled when it is known.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "client/cli/session.h"
#include "daemon/protocol/channel.h"
#include "search/tuner.h"

namespace tilewright::cli {

struct TuningFlags;

/// A tune's report as it was made, and what a sweep keeps of it.
struct TuneAnswer {
  std::string text, json;
  search::TuneReport
      report;  ///< of a daemon: what its JSON says of choice, baseline and candidates
  std::optional<Error> unsaved;  ///< why what was found is not, or not all, in the cache
  std::string joined;            ///< not empty: settings that counted in place of those asked for
};

class DaemonTuning {
 public:
  /// Errors: kUnsupported names the flag that the daemon was not started with.
  static Result<DaemonTuning> start(const Session& session, const TuningFlags& flags,
                                    protocol::Channel daemon);

  const jit::Conditions& measured() const { return measured_; }
  /// The daemon's device, generator and NVRTC, and how plans are measured.
  Digest conditions() const;
  /// A stop has the daemon end the tune with what it found. Errors: kCancelled: others wait for it
  /// too, so it goes on; what the daemon says; kHang, kIo.
  Result<TuneAnswer> tune(const templates::Operator& op, const templates::Bindings& bindings,
                          const std::function<void(const search::TuneProgress&)>& progress,
                          std::stop_token stop);

 private:
  explicit DaemonTuning(protocol::Channel daemon) : daemon_(std::move(daemon)) {}

  protocol::Channel daemon_;
  protocol::Tune settings_;  ///< its problem's device and wishes too
  jit::Conditions measured_;
};

}  // namespace tilewright::cli
