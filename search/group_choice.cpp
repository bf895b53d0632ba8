#include "search/group_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace tilewright::search {

std::string to_text(const GroupChoice& choice) {
  return fmt::format("{} {} of {}", choice.family, templates::to_string(choice.config),
                     fmt::join(choice.statements, "+"));
}

Result<GroupChoice> parse_group(const std::string& text) {
  const auto refused = [&] {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("group is '{}', expected FAMILY TUNABLE=VALUE... of STATEMENT+...", text));
  };
  const auto number = [](std::string_view digits, auto& out) {
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  };
  GroupChoice choice;
  std::istringstream words(text);
  std::string word;
  if (!(words >> choice.family)) return refused();
  while (words >> word && word != "of") {
    const auto equals = word.find('=');
    if (equals == std::string::npos ||
        !number(std::string_view(word).substr(equals + 1), choice.config[word.substr(0, equals)]))
      return refused();
  }
  if (word != "of" || !(words >> word) || word.ends_with('+')) return refused();
  std::istringstream statements(word);
  for (std::string index; std::getline(statements, index, '+');)
    if (!number(index, choice.statements.emplace_back())) return refused();
  if (words >> word) return refused();
  return choice;
}

Result<std::vector<Part>> parts_of(const std::vector<GroupChoice>& choices,
                                   const PartitionSpace& space) {
  std::vector<Part> parts;
  for (const GroupChoice& choice : choices) {
    const auto& groups = space.groups();
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& candidate) {
      return candidate.statements == choice.statements;
    });
    if (group == groups.end())
      return fail(ErrorCode::kUnsupported,
                  fmt::format("'{}' is no group of the operator", to_text(choice)));
    const auto family = std::find_if(
        group->families.begin(), group->families.end(),
        [&](const templates::Family* candidate) { return candidate->name() == choice.family; });
    if (family == group->families.end())
      return fail(ErrorCode::kUnsupported, fmt::format("{} does not accept the group of '{}'",
                                                       choice.family, to_text(choice)));
    parts.push_back({static_cast<int>(group - groups.begin()), *family, choice.config});
  }
  if (parts.empty()) return fail(ErrorCode::kUnsupported, "the plan has no groups");
  return parts;
}

}  // namespace tilewright::search
