// describe(): partitions as people and golden files read them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "search/partition.h"

namespace tilewright::search {
namespace {

std::string family_names(const Group& group) {
  std::string names;
  for (const templates::Family* family : group.families)
    names += fmt::format("{}{}", names.empty() ? "" : " or ", family->name());
  return names;
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} kB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

Result<std::string> describe(const PartitionSpace& space, const templates::Bindings* bindings,
                             std::size_t limit) {
  std::string text = "groups\n";
  for (std::size_t i = 0; i < space.groups().size(); ++i) {
    const Group& group = space.groups()[i];
    text += fmt::format("  g{}  {}", i, family_names(group));
    if (bindings != nullptr) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t moved, space.bytes_moved(group, *bindings));
      TILEWRIGHT_ASSIGN_OR_RETURN(const std::int64_t saved, space.bytes_saved(group, *bindings));
      text += fmt::format(", moves {}", bytes_text(moved));
      if (saved != 0) text += fmt::format(", saves {}", bytes_text(saved));
    }
    text += '\n';
    for (const std::string& statement : statement_texts(space.op(), group.statements))
      text += fmt::format("        {}\n", statement);
  }
  // Where sizes are known, by what must be moved; else the most fused first.
  Result<void> known;
  const std::vector<Partition> partitions = space.best(limit + 1, [&](const Group& group) {
    if (bindings == nullptr) return 1.0;
    auto moved = space.bytes_moved(group, *bindings);
    if (!moved) known = fail(moved.error());
    return moved ? static_cast<double>(*moved) : 0.0;
  });
  if (!known) return fail(known.error());
  text += "partitions\n";
  for (std::size_t i = 0; i < partitions.size() && i < limit; ++i) {
    std::string groups;
    std::int64_t moved = 0;
    for (const int group : partitions[i]) {
      groups += fmt::format(" g{}", group);
      if (bindings == nullptr) continue;
      TILEWRIGHT_ASSIGN_OR_RETURN(
          const std::int64_t bytes,
          space.bytes_moved(space.groups()[static_cast<std::size_t>(group)], *bindings));
      moved += bytes;
    }
    text += fmt::format("  p{} {}", i, groups);
    if (bindings != nullptr) text += fmt::format("  moves {}", bytes_text(moved));
    if (partitions[i] == space.unfused()) text += "  (unfused)";
    text += '\n';
  }
  if (partitions.size() > limit) text += "  ... and more\n";
  if (space.truncated()) text += "  the operator is long: its largest fusions were not looked at\n";
  text += space.illegal().empty() ? "" : "illegal\n";
  for (const IllegalFusion& fusion : space.illegal())
    text += fmt::format("  {}\n    {}\n", fmt::join(fusion.statements, "\n  "), fusion.reason);
  return text;
}

}  // namespace tilewright::search
