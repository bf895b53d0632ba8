#include "search/share.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tilewright::search {
namespace {

constexpr double kHopeless = 3;  ///< times slower than another family for the same group

double weight_of(const ArmStanding& arm) {
  // Where nothing has survived, the floor says how much there is to win.
  if (!std::isfinite(arm.best_us)) return std::max(arm.floor_us, 1e-3);
  return std::max({arm.best_us - arm.floor_us, 0.05 * arm.best_us, 1e-3});
}

}  // namespace

std::vector<int> share_out(std::span<const ArmStanding> arms, int evaluations) {
  std::vector<int> shares(arms.size(), 0);
  std::vector<double> weights(arms.size(), 0);
  const auto weigh = [&](auto takes_part) {
    for (std::size_t i = 0; i < arms.size(); ++i)
      if (!arms[i].exhausted && takes_part(arms[i])) weights[i] = weight_of(arms[i]);
    return std::accumulate(weights.begin(), weights.end(), 0.0);
  };
  const auto hopeful = [](const ArmStanding& arm) {
    return !std::isfinite(arm.group_best_us) || arm.best_us <= kHopeless * arm.group_best_us;
  };
  double total = weigh([&](const ArmStanding& arm) { return arm.leading && hopeful(arm); });
  if (total == 0) total = weigh([](const ArmStanding& arm) { return arm.leading; });
  if (total == 0) total = weigh([](const ArmStanding&) { return true; });
  if (total == 0 || evaluations <= 0) return shares;

  // Largest remainders; ties go to earlier arms.
  std::vector<std::pair<double, std::size_t>> remainders;
  int given = 0;
  for (std::size_t i = 0; i < arms.size(); ++i) {
    if (weights[i] == 0) continue;
    const double exact = evaluations * weights[i] / total;
    shares[i] = static_cast<int>(exact);
    given += shares[i];
    remainders.emplace_back(exact - shares[i], i);
  }
  std::stable_sort(remainders.begin(), remainders.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (std::size_t i = 0; given < evaluations; i = (i + 1) % remainders.size()) {
    ++shares[remainders[i].second];
    ++given;
  }
  return shares;
}

}  // namespace tilewright::search
