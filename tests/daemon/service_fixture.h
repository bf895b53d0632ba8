/// A service on fakes, and how tests ask it.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "daemon/service.h"
#include "tests/daemon/fake_planner.h"

namespace tilewright::daemon::testing {

class ServiceTest : public ::testing::Test {
 protected:
  ServiceTest() : store_(cache::memory_store()), planner_(*store_) { restart(); }
  ~ServiceTest() override { planner_.open_gate(); }

  void restart() {
    service_.reset();
    service_ = std::make_unique<Service>(config_, *store_, planner_);
  }
  Result<std::shared_ptr<const Reply>> get(const protocol::Problem& problem) {
    if (auto reply = service_->find(problem)) return reply;
    std::promise<Result<std::shared_ptr<const Reply>>> answer;
    service_->get(problem, [&](auto reply) { answer.set_value(std::move(reply)); });
    return answer.get_future().get();
  }
  protocol::Plan plan(const protocol::Problem& problem) {
    auto reply = cache::testing::value_of(get(problem));
    return std::get<protocol::Plan>(
        cache::testing::value_of(protocol::decode_body(reply->with_images)));
  }
  bool drain() { return service_->drain(std::chrono::seconds(5)); }
  double counter(const std::string& name) {
    for (const auto& counter : service_->statistics().counters)
      if (counter.name == name) return counter.value;
    return -1;
  }

  Config config_;
  std::unique_ptr<cache::Store> store_;
  FakePlanner planner_;
  std::unique_ptr<Service> service_;
};

}  // namespace tilewright::daemon::testing
