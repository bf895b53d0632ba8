#include "cache/wished.h"

namespace tilewright::cache {

Result<const Entry*> find_wished(const Record& record, const templates::Bindings& sizes,
                                 const jit::Wishes& wishes) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const jit::Conditions wanted, wishes.over({}));
  const Entry* best = record.find(sizes, wanted);
  if (!best || best->evidence.conditions == wanted) return best;
  bool met = wishes.met_by(best->evidence.conditions);
  for (const Entry& entry : record.entries) {
    const jit::Conditions& conditions = entry.evidence.conditions;
    if (!wishes.met_by(conditions)) continue;
    // The one of these conditions that serves the sizes, if any does.
    const Entry* found = record.find(sizes, conditions);
    if (found->evidence.conditions != conditions) continue;
    const auto differ = [&](const Entry* from) {
      return jit::differences(from->evidence.conditions, wanted);
    };
    if (met && differ(found) >= differ(best)) continue;
    best = found;
    met = true;
  }
  return best;
}

}  // namespace tilewright::cache
