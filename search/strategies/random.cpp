#include "search/strategies/random.h"

namespace tilewright::search {
namespace {

class Random : public Strategy {
 public:
  Random(ConfigSpace space, templates::Config first, std::uint64_t seed)
      : space_(std::move(space)), first_(std::move(first)), sampler_(space_.count(), seed) {}

  std::optional<templates::Config> ask() override {
    if (!asked_first_) {
      asked_first_ = true;
      return first_;
    }
    while (!sampler_.empty()) {
      templates::Config config = space_.at(sampler_.draw());
      if (config != first_) return config;
    }
    return std::nullopt;
  }
  void tell(const templates::Config&, std::optional<double>) override {}

 private:
  ConfigSpace space_;
  templates::Config first_;
  bool asked_first_ = false;
  Sampler sampler_;
};

}  // namespace

std::unique_ptr<Strategy> random_strategy(ConfigSpace space, templates::Config first,
                                          std::uint64_t seed) {
  return std::make_unique<Random>(std::move(space), std::move(first), seed);
}

}  // namespace tilewright::search
