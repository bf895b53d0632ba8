#include "jit/virtual_gpu/driver/faults.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace tilewright::vgpu {
namespace {

tl::unexpected<Error> invalid(const std::string& rule, const std::string& why) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("fault rule '{}': {}", rule, why));
}

std::optional<double> number(const std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> count(const std::string& word) {
  const auto value = number(word);
  if (!value || *value < 1 || *value > 1e15 || *value != std::floor(*value)) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

}  // namespace

Result<void> Faults::add_rule(const std::vector<std::string>& words) {
  const std::string whole = fmt::format("{}", fmt::join(words, " "));
  Rule rule;
  std::string which = words.size() > 1 ? words[1] : "";
  if (const std::size_t colon = which.rfind(':'); colon != std::string::npos) {
    rule.pattern = which.substr(0, colon);
    which = which.substr(colon + 1);
  } else if (!count(which) && !which.ends_with('+')) {
    rule.pattern = which;
    which.clear();
  }
  if (!which.empty()) {
    const bool open = which.back() == '+';
    const auto first = count(open ? which.substr(0, which.size() - 1) : which);
    if (!first || rule.pattern.empty())
      return invalid(whole, fmt::format("launch is '{}', expected N, N+, PATTERN, PATTERN:N or "
                                        "PATTERN:N+",
                                        words[1]));
    rule.first = *first;
    rule.last = open ? UINT64_MAX : *first;
  }
  TILEWRIGHT_TRY(set_action(words, whole, rule));
  rules_.push_back(std::move(rule));
  return {};
}

Result<void> Faults::set_action(const std::vector<std::string>& words, const std::string& whole,
                                Rule& rule) {
  constexpr std::pair<const char*, FaultAction> kActions[] = {
      {"fault", FaultAction::kFault},     {"hang", FaultAction::kHang},
      {"corrupt", FaultAction::kCorrupt}, {"out-of-memory", FaultAction::kOutOfMemory},
      {"crash", FaultAction::kCrash},     {"lost", FaultAction::kLost}};
  const std::string action = words.size() > 2 ? words[2] : "";
  std::size_t expected = 3;
  for (const auto& [name, value] : kActions)
    if (action == name) rule.action = value;
  if (action == "slow" || action == "noise") {
    expected = 4;
    const auto factor = words.size() > 3 ? number(words[3]) : std::nullopt;
    if (!factor || *factor <= 0)
      return invalid(whole, fmt::format("{} is '{}', expected a number above 0",
                                        action == "slow" ? "factor" : "sigma",
                                        words.size() > 3 ? words[3] : ""));
    (action == "slow" ? rule.factor : rule.sigma) = *factor;
  } else if (rule.action == FaultAction::kNone) {
    return invalid(whole, fmt::format("action is '{}', expected fault, hang, corrupt, "
                                      "out-of-memory, crash, lost, slow FACTOR or noise SIGMA",
                                      action));
  }
  if (words.size() != expected)
    return invalid(whole, fmt::format("{} words, expected {}", words.size(), expected));
  return {};
}

Result<void> Faults::add_modules_rule(const std::vector<std::string>& words) {
  const std::string whole = fmt::format("{}", fmt::join(words, " "));
  const auto share = words.size() > 1 ? number(words[1]) : std::nullopt;
  if (!share || *share <= 0 || next_place_ + *share > 1 + 1e-9)
    return invalid(whole, fmt::format("share is '{}', expected a number above 0; all shares of "
                                      "modules may be 1 together",
                                      words.size() > 1 ? words[1] : ""));
  Rule rule;
  rule.first_place = next_place_;
  rule.last_place = next_place_ += *share;
  TILEWRIGHT_TRY(set_action(words, whole, rule));
  rules_.push_back(std::move(rule));
  return {};
}

Result<void> Faults::add(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (words.empty()) return {};
  any_ = true;
  if (words[0] == "launch") return add_rule(words);
  if (words[0] == "modules") return add_modules_rule(words);
  const std::string whole = fmt::format("{}", fmt::join(words, " "));
  std::vector<double> values;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto value = number(words[i]);
    if (!value || *value < 0)
      return invalid(whole,
                     fmt::format("'{}' is not what is expected: a number of at least 0", words[i]));
    values.push_back(*value);
  }
  struct Known {
    const char* name;
    std::size_t values;
    const char* form;
  };
  constexpr Known kKnown[] = {{"seed", 1, "seed N"},
                              {"clock", 2, "clock LAUNCH FACTOR"},
                              {"throttle", 3, "throttle PERIOD SHARE FACTOR"},
                              {"noise", 1, "noise SIGMA"},
                              {"drift", 2, "drift KEEP SIGMA"},
                              {"outliers", 2, "outliers SHARE FACTOR"}};
  const Known* known = nullptr;
  std::string names = "launch, modules";
  for (const Known& one : kKnown) {
    if (words[0] == one.name) known = &one;
    names += std::string(", ") + one.name;
  }
  if (!known) return invalid(whole, fmt::format("begins with '{}', expected {}", words[0], names));
  if (values.size() != known->values)
    return invalid(whole, fmt::format("{} values, expected {}", values.size(), known->form));
  const std::string name = known->name;
  const bool zero_factor = (name == "clock" && values[1] == 0) ||
                           (name == "throttle" && (values[0] < 1 || values[2] == 0));
  if (zero_factor || (name == "drift" && values[0] >= 1) || (name == "outliers" && values[0] > 1) ||
      (name == "throttle" && values[1] > 1))
    return invalid(whole,
                   "expected factors and periods above 0, shares of at most 1, KEEP below 1");
  if (name == "seed") {
    state_ = static_cast<std::uint64_t>(values[0]) * 0x9e3779b97f4a7c15ull + 1;
  } else if (name == "clock") {
    clocks_.push_back({static_cast<std::uint64_t>(values[0]), values[1]});
  } else if (name == "throttle") {
    throttle_period_ = static_cast<std::uint64_t>(values[0]);
    throttle_share_ = values[1];
    throttle_factor_ = values[2];
  } else if (name == "noise") {
    sigma_ = values[0];
  } else if (name == "drift") {
    drift_keep_ = values[0];
    drift_sigma_ = values[1];
  } else {
    outlier_share_ = values[0];
    outlier_factor_ = values[1];
  }
  return {};
}

Result<Faults> Faults::parse(std::string_view text) {
  Faults faults;
  std::string rule;
  bool comment = false;
  for (char c : std::string(text) + "\n") {
    if (c == '\n' || (c == ';' && !comment)) {
      TILEWRIGHT_TRY(faults.add(rule));
      rule.clear();
      comment = false;
    } else if (c == '#') {
      comment = true;
    } else if (!comment) {
      rule += c;
    }
  }
  return faults;
}

Result<Faults> Faults::from_environment() {
  const char* given = std::getenv("TILEWRIGHT_VGPU_FAULTS");
  if (!given) return Faults{};
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(given, ignored)) return parse(given);
  std::ifstream stream(given, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  auto faults = parse(text.str());
  if (!faults) return fail(with_context(faults.error(), given));
  return faults;
}

std::uint64_t Faults::random() {  // splitmix64
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

double Faults::normal() {  // Box and Muller
  const double u = 1 - double(random() >> 11) * 0x1p-53, v = double(random() >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * 3.14159265358979323846 * v);
}

void Faults::loaded(const void* module, std::string_view text) {
  if (next_place_ > 0) places_[module] = place_of(text);
}

double Faults::place_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a, then mixed
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  hash ^= hash >> 32;
  hash *= 0x9e3779b97f4a7c15ull;
  return double(hash >> 11) * 0x1p-53;
}

bool Faults::matches(const Rule& rule, const std::string& kernel, const void* module) const {
  if (rule.last_place == 0) return fnmatch(rule.pattern.c_str(), kernel.c_str(), 0) == 0;
  const auto place = places_.find(module);
  return place != places_.end() && rule.first_place <= place->second &&
         place->second < rule.last_place;
}

Faults::Decision Faults::next(std::string_view kernel, const void* module) {
  Decision decision;
  decision.launch = ++launches_;
  const std::string name(kernel);
  for (Rule& rule : rules_) {
    if (!matches(rule, name, module)) continue;
    ++rule.seen;
    if (rule.first != 0 && (rule.seen < rule.first || rule.seen > rule.last)) continue;
    if (rule.action != FaultAction::kNone) decision.action = rule.action;
    decision.time_factor *= rule.factor;
    if (rule.sigma > 0) decision.time_factor *= std::exp(rule.sigma * normal());
  }
  std::uint64_t from = 0;
  for (const Clock& clock : clocks_)
    if (launches_ >= clock.from && clock.from >= from) {
      from = clock.from;
      decision.clock_factor = clock.factor;
    }
  if (throttle_period_ > 0) {
    const double place = double((launches_ - 1) % throttle_period_);
    decision.throttled = place >= double(throttle_period_) * (1 - throttle_share_);
    if (decision.throttled) decision.clock_factor *= throttle_factor_;
  }
  decision.time_factor /= decision.clock_factor;
  // Drawn whether or not they count, so that one rule does not change what others draw.
  const double noise = normal(), step = normal();
  const double outlier = double(random() >> 11) * 0x1p-53;
  drift_ = drift_keep_ * drift_ + drift_sigma_ * step;
  decision.time_factor *= std::exp(sigma_ * noise + drift_);
  if (outlier < outlier_share_) decision.time_factor *= outlier_factor_;
  decision.random = random();
  return decision;
}

bool Faults::vary_times() const {
  if (!clocks_.empty() || throttle_period_ > 0 || sigma_ > 0 || drift_sigma_ > 0 ||
      outlier_share_ > 0)
    return true;
  return std::any_of(rules_.begin(), rules_.end(),
                     [](const Rule& rule) { return rule.factor != 1 || rule.sigma > 0; });
}

}  // namespace tilewright::vgpu
