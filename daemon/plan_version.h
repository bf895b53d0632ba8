/// What clients know a plan by, and how it answers what they asked for.
#pragma once

#include <cstdint>
#include <string>

#include "cache/record.h"
#include "daemon/protocol/messages.h"

namespace tilewright::daemon {

/// Packed; "" where there is none.
std::string pack_narrow(const cache::Entry& entry);

/// Of a packed plan and its narrow one. Never 0, which says that a client holds none.
std::uint64_t version_of(const std::string& plan, const std::string& narrow);
std::uint64_t version_of(const cache::Entry& entry);

/// Of an entry that answers the problem.
protocol::Source source_of(const cache::Entry& entry, const jit::Conditions& wanted);

}  // namespace tilewright::daemon
