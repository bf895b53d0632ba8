#include "search/space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace tilewright::search {
namespace {

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

tl::unexpected<Error> refuse(const std::string& file, int line, const std::string& message) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file, line, message));
}

std::string kind_of(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return "`" + node.Scalar() + "`";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a map";
    default:
      return "nothing";
  }
}

std::optional<std::int64_t> integer_of(const YAML::Node& node) {
  if (!node.IsScalar()) return std::nullopt;
  std::int64_t value = 0;
  if (!YAML::convert<std::int64_t>::decode(node, value)) return std::nullopt;
  return value;
}

bool is_name(const std::string& text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 128 && (std::isalnum(c) != 0 || c == '_'); });
}

Result<Tunable> parse_tunable(const std::string& file, const YAML::Node& name,
                              const YAML::Node& values) {
  if (!name.IsScalar() || !is_name(name.Scalar()))
    return refuse(file, line_of(name),
                  fmt::format("a tunable is named {}, expected an identifier", kind_of(name)));
  Tunable tunable{name.Scalar(), {}, line_of(name)};
  if (!values.IsSequence() || values.size() == 0)
    return refuse(file, line_of(name),
                  fmt::format("the domain of {} is {}, expected a list of one integer or more",
                              tunable.name, values.IsSequence() ? "empty" : kind_of(values)));
  if (values.size() > 0xffff)
    return refuse(file, line_of(name),
                  fmt::format("the domain of {} has {} values, expected at "
                              "most 65535",
                              tunable.name, values.size()));
  for (const YAML::Node& node : values) {
    const auto value = integer_of(node);
    if (!value)
      return refuse(
          file, line_of(node),
          fmt::format("a value of {} is {}, expected an integer", tunable.name, kind_of(node)));
    if (std::find(tunable.values.begin(), tunable.values.end(), *value) != tunable.values.end())
      return refuse(file, line_of(node),
                    fmt::format("{} is twice in the domain of {}", *value, tunable.name));
    tunable.values.push_back(*value);
  }
  return tunable;
}

/// Finds the set that holds `i`, halving paths.
int root(std::vector<int>& parent, int i) {
  while (parent[i] != i) i = parent[i] = parent[parent[i]];
  return i;
}

/// A constraint ready for evaluation: where the values of its variables are.
struct BoundConstraint {
  const Constraint* constraint = nullptr;
  std::vector<int> slots;  ///< tunables, then fixed variables
  int last = -1;           ///< the last tunable that it needs; -1: none
};

}  // namespace

Variables device_variables(const jit::DeviceInfo& device) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  return {
      {"device.sm_count", device.sm_count},
      {"device.shared_per_block_optin", number(device.shared_per_block_optin)},
      {"device.shared_per_sm", number(device.shared_per_sm)},
      {"device.registers_per_sm", device.registers_per_sm},
      {"device.max_threads_per_sm", device.max_threads_per_sm},
      {"device.l2_bytes", number(device.l2_bytes)},
      {"device.memory_bytes", number(device.memory_bytes)},
      {"device.compute", device.compute_major * 10 + device.compute_minor},
  };
}

Result<Space> Space::parse(const std::string& yaml, const std::string& file) {
  YAML::Node document;
  try {
    document = YAML::Load(yaml);
  } catch (const YAML::Exception& error) {
    return refuse(file, error.mark.line + 1, error.msg);
  }
  if (!document.IsMap())
    return refuse(file, 1,
                  fmt::format("the file holds {}, expected a map of family, tunables and "
                              "constraints",
                              kind_of(document)));
  Space space;
  space.file_ = file;
  std::set<std::string> seen;
  YAML::Node constraints;
  for (const auto& entry : document) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : kind_of(entry.first);
    const int line = line_of(entry.first);
    if (!seen.insert(key).second)
      return refuse(file, line, fmt::format("`{}` is there twice", key));
    if (key == "family") {
      if (!entry.second.IsScalar() || !is_name(entry.second.Scalar()))
        return refuse(file, line,
                      fmt::format("family is {}, expected the name of a kernel family",
                                  kind_of(entry.second)));
      space.family_ = entry.second.Scalar();
      space.family_line_ = line;
    } else if (key == "tunables") {
      if (!entry.second.IsMap())
        return refuse(
            file, line,
            fmt::format("tunables is {}, expected a map of name to values", kind_of(entry.second)));
      std::set<std::string> names;
      for (const auto& item : entry.second) {
        TILEWRIGHT_ASSIGN_OR_RETURN(Tunable tunable, parse_tunable(file, item.first, item.second));
        if (!names.insert(tunable.name).second)
          return refuse(file, tunable.line, fmt::format("tunable {} is there twice", tunable.name));
        space.tunables_.push_back(std::move(tunable));
      }
    } else if (key == "constraints") {
      if (!entry.second.IsSequence() && !entry.second.IsNull())
        return refuse(file, line,
                      fmt::format("constraints is {}, expected a list of expressions",
                                  kind_of(entry.second)));
      constraints.reset(entry.second);
    } else {
      return refuse(file, line,
                    fmt::format("unknown key `{}`, expected family, tunables or "
                                "constraints",
                                key));
    }
  }
  for (const char* key : {"family", "tunables"})
    if (!seen.contains(key)) return refuse(file, 1, fmt::format("`{}:` is missing", key));
  if (constraints.IsSequence())
    for (const YAML::Node& node : constraints) {
      if (!node.IsScalar())
        return refuse(file, line_of(node),
                      fmt::format("a constraint is {}, expected an expression", kind_of(node)));
      TILEWRIGHT_ASSIGN_OR_RETURN(Constraint constraint,
                                  Constraint::parse(node.Scalar(), file, line_of(node)));
      space.constraints_.push_back(std::move(constraint));
    }
  return space;
}

Result<Space> Space::load(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf()))
    return fail(ErrorCode::kNotFound, fmt::format("cannot read the space {}", file.string()));
  return parse(text.str(), file.string());
}

Result<void> Space::check_tunables(std::span<const std::string> of_template) const {
  const auto has_domain = [&](const std::string& name) {
    return std::any_of(tunables_.begin(), tunables_.end(),
                       [&](const Tunable& tunable) { return tunable.name == name; });
  };
  for (const Tunable& tunable : tunables_)
    if (std::find(of_template.begin(), of_template.end(), tunable.name) == of_template.end())
      return refuse(file_, tunable.line,
                    fmt::format("{} is no tunable of {}, whose tunables are {}", tunable.name,
                                family_, fmt::join(of_template, ", ")));
  for (const std::string& name : of_template)
    if (!has_domain(name))
      return refuse(file_, family_line_,
                    fmt::format("tunable {} of {} has no domain", name, family_));
  return {};
}

Result<ConfigSpace> Space::bind(const Variables& variables) const {
  const int tunables = static_cast<int>(tunables_.size());
  // The values of all variables, tunables first.
  std::vector<std::int64_t> values(tunables_.size());
  std::map<std::string, int> slots;
  for (int i = 0; i < tunables; ++i) slots[tunables_[i].name] = i;
  for (const auto& [name, value] : variables) {
    if (!slots.emplace(name, static_cast<int>(values.size())).second)
      return refuse(file_, tunables_[slots[name]].line,
                    fmt::format("tunable {} has the name of a variable", name));
    values.push_back(value);
  }

  std::vector<int> parent(tunables_.size());
  for (int i = 0; i < tunables; ++i) parent[i] = i;
  std::vector<BoundConstraint> bound;
  for (const Constraint& constraint : constraints_) {
    BoundConstraint entry{&constraint, {}, -1};
    int first = -1;
    for (const std::string& name : constraint.expression.variables()) {
      const auto slot = slots.find(name);
      if (slot == slots.end()) {
        std::vector<std::string> known;
        for (const Tunable& tunable : tunables_) known.push_back(tunable.name);
        for (const auto& variable : variables) known.push_back(variable.first);
        return refuse(file_, constraint.line,
                      fmt::format("unknown variable {} in `{}`, known are {}", name,
                                  constraint.expression.text(), fmt::join(known, ", ")));
      }
      entry.slots.push_back(slot->second);
      if (slot->second >= tunables) continue;
      entry.last = std::max(entry.last, slot->second);
      if (first < 0)
        first = slot->second;
      else
        parent[root(parent, slot->second)] = root(parent, first);
    }
    bound.push_back(std::move(entry));
  }

  ConfigSpace space;
  space.tunables_ = tunables_;
  std::map<int, int> part_of;
  for (int i = 0; i < tunables; ++i) {
    const auto [entry, added] =
        part_of.emplace(root(parent, i), static_cast<int>(space.parts_.size()));
    if (added) space.parts_.emplace_back();
    space.parts_[entry->second].tunables.push_back(i);
  }

  const Constraint* refused = nullptr;
  std::vector<std::int64_t> scratch;
  const auto holds = [&](const BoundConstraint& entry) -> Result<bool> {
    scratch.clear();
    for (const int slot : entry.slots) scratch.push_back(values[slot]);
    auto value = entry.constraint->expression.evaluate(scratch);
    if (!value) {
      std::string at;
      for (std::size_t i = 0; i < entry.slots.size(); ++i)
        at += fmt::format(" {}={}", entry.constraint->expression.variables()[i], scratch[i]);
      return refuse(file_, entry.constraint->line,
                    fmt::format("constraint `{}` at{}: {}", entry.constraint->expression.text(), at,
                                value.error().message));
    }
    if (*value == 0) refused = entry.constraint;
    return *value != 0;
  };
  const auto nothing = [&] {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: no config of {} is valid here; {} refused last: `{}`", file_,
                            family_, refused->where(), refused->expression.text()));
  };

  for (const BoundConstraint& entry : bound)
    if (entry.last < 0) {
      TILEWRIGHT_ASSIGN_OR_RETURN(const bool valid, holds(entry));
      if (!valid) return nothing();
    }
  space.count_ = 1;
  for (ConfigSpace::Part& part : space.parts_) {
    const std::size_t depth = part.tunables.size();
    // Constraints by the place in the part at which the last of their tunables gets its value.
    std::vector<std::vector<const BoundConstraint*>> checks(depth);
    for (std::size_t place = 0; place < depth; ++place)
      for (const BoundConstraint& entry : bound)
        if (entry.last == part.tunables[place]) checks[place].push_back(&entry);
    std::vector<std::size_t> index(depth, 0);
    std::size_t place = 0;
    while (true) {
      const Tunable& tunable = tunables_[part.tunables[place]];
      if (index[place] == tunable.values.size()) {
        if (place == 0) break;
        index[place--] = 0;
        ++index[place];
        continue;
      }
      values[part.tunables[place]] = tunable.values[index[place]];
      bool valid = true;
      for (const BoundConstraint* entry : checks[place]) {
        TILEWRIGHT_ASSIGN_OR_RETURN(valid, holds(*entry));
        if (!valid) break;
      }
      if (valid && place + 1 < depth) {
        ++place;
        continue;
      }
      if (valid) {
        for (const std::size_t i : index) part.rows.push_back(static_cast<std::uint16_t>(i));
        ++part.count;
      }
      ++index[place];
    }
    if (part.count == 0) return nothing();
    if (__builtin_mul_overflow(space.count_, part.count, &space.count_))
      space.count_ = std::numeric_limits<std::uint64_t>::max();
  }
  return space;
}

templates::Config ConfigSpace::at(std::uint64_t i) const {
  templates::Config config;
  // The first part is the slowest digit.
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    const std::size_t row = static_cast<std::size_t>(i % part->count) * part->tunables.size();
    i /= part->count;
    for (std::size_t k = 0; k < part->tunables.size(); ++k) {
      const Tunable& tunable = tunables_[part->tunables[k]];
      config[tunable.name] = tunable.values[part->rows[row + k]];
    }
  }
  return config;
}

bool ConfigSpace::contains(const templates::Config& config) const {
  if (config.size() != tunables_.size()) return false;
  for (const Part& part : parts_) {
    std::vector<std::uint16_t> wanted;
    for (const int i : part.tunables) {
      const auto value = config.find(tunables_[i].name);
      if (value == config.end()) return false;
      const auto& domain = tunables_[i].values;
      const auto place = std::find(domain.begin(), domain.end(), value->second);
      if (place == domain.end()) return false;
      wanted.push_back(static_cast<std::uint16_t>(place - domain.begin()));
    }
    // Rows are in lexicographic order of their indices.
    const std::size_t width = wanted.size();
    std::uint64_t low = 0, high = part.count;
    while (low < high) {
      const std::uint64_t middle = (low + high) / 2;
      const auto row = part.rows.begin() + static_cast<std::ptrdiff_t>(middle * width);
      if (std::lexicographical_compare(row, row + static_cast<std::ptrdiff_t>(width),
                                       wanted.begin(), wanted.end()))
        low = middle + 1;
      else
        high = middle;
    }
    if (low == part.count ||
        !std::equal(wanted.begin(), wanted.end(),
                    part.rows.begin() + static_cast<std::ptrdiff_t>(low * width)))
      return false;
  }
  return true;
}

std::uint64_t Sampler::draw() {
  const std::uint64_t last = left_ - 1;
  // Not std::uniform_int_distribution, since what that draws differs between libraries. The bias of
  // the remainder is left_ / 2^64.
  const std::uint64_t place = random_() % left_;
  const auto at = [&](std::uint64_t i) {
    const auto moved = moved_.find(i);
    return moved == moved_.end() ? i : moved->second;
  };
  const std::uint64_t drawn = at(place);
  moved_[place] = at(last);
  moved_.erase(last);
  --left_;
  return drawn;
}

}  // namespace tilewright::search
