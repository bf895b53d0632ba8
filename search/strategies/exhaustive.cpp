#include "search/strategies/exhaustive.h"

namespace tilewright::search {
namespace {

class Exhaustive : public Strategy {
 public:
  Exhaustive(ConfigSpace space, templates::Config first)
      : space_(std::move(space)), first_(std::move(first)) {}

  std::optional<templates::Config> ask() override {
    if (!asked_first_) {
      asked_first_ = true;
      return first_;
    }
    while (next_ < space_.count()) {
      templates::Config config = space_.at(next_++);
      if (config != first_) return config;
    }
    return std::nullopt;
  }
  void tell(const templates::Config&, std::optional<double>) override {}

 private:
  ConfigSpace space_;
  templates::Config first_;
  bool asked_first_ = false;
  std::uint64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> exhaustive_strategy(ConfigSpace space, templates::Config first) {
  return std::make_unique<Exhaustive>(std::move(space), std::move(first));
}

}  // namespace tilewright::search
