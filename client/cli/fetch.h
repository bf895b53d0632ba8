/// The plan of a problem as the daemon serves it, for commands that look into it.
#pragma once

#include "client/cli/session.h"
#include "daemon/protocol/messages.h"
#include "jit/plan.h"

namespace tilewright::cli {

struct Fetched {
  protocol::Plan answer;
  jit::Plan plan, narrow;
};

/// Sizes of the dynamic dimensions in the operator's order. Errors: kInvalidArgument names the
/// dimension that the shape leaves out.
Result<std::vector<std::int64_t>> sizes_of(const Problem& problem);

/// From the daemon, which is started if nobody listens; with --no-daemon from the store, where a
/// miss is kNotFound.
Result<Fetched> fetch(const Session& session, const Problem& problem,
                      const jit::Wishes& wishes = {});

}  // namespace tilewright::cli
