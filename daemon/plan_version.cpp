#include "daemon/plan_version.h"

#include "jit/digest.h"

namespace tilewright::daemon {

std::string pack_narrow(const cache::Entry& entry) {
  return entry.narrow.tensors.empty() ? std::string() : jit::pack(entry.narrow);
}

std::uint64_t version_of(const std::string& plan, const std::string& narrow) {
  return Hasher().add(plan).add(narrow).finish().low | 1;
}

std::uint64_t version_of(const cache::Entry& entry) {
  return version_of(jit::pack(entry.plan), pack_narrow(entry));
}

protocol::Source source_of(const cache::Entry& entry, const jit::Conditions& wanted) {
  return entry.evidence.conditions == wanted ? protocol::Source::kHit : protocol::Source::kOther;
}

}  // namespace tilewright::daemon
