#include "client/cli/fetch.h"

#include <fmt/format.h>

#include "cache/wished.h"
#include "client/start_daemon.h"

namespace tilewright::cli {
namespace {

// A fallback may have to be compiled.
constexpr std::chrono::milliseconds kAnswerTimeout{60'000};

Result<Fetched> from_store(const Session& session, const Problem& problem,
                           const jit::Wishes& wishes) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto choice, session.device());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, jit::Driver::open(choice.driver));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto headers, session.headers());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto store, session.store());
  auto key = cache::Key::of(*problem.op, driver->device(choice.ordinal));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto record, store->get(key));
  const cache::Entry* entry = nullptr;
  if (record && record->generator == templates::generator_digest(headers)) {
    TILEWRIGHT_ASSIGN_OR_RETURN(entry, cache::find_wished(*record, problem.bindings, wishes));
  }
  if (!entry)
    return fail(ErrorCode::kNotFound,
                fmt::format("{} is not in {}, expected a tune of it before, or a daemon",
                            problem.title, session.cache_folder().string()));
  Fetched fetched{.answer = {}, .plan = entry->plan, .narrow = entry->narrow};
  fetched.answer.problem = key.problem;
  fetched.answer.source =
      wishes.met_by(entry->evidence.conditions) ? protocol::Source::kHit : protocol::Source::kOther;
  fetched.answer.conditions = entry->evidence.conditions;
  fetched.answer.verified = entry->evidence.verified;
  fetched.answer.modelled = entry->evidence.modelled;
  if (auto point = cache::measured_at(entry->evidence, problem.bindings)) {
    fetched.answer.time_us = point->time_us;
    fetched.answer.baseline_us = point->baseline_us;
  }
  fetched.answer.groups = entry->groups;
  return fetched;
}

}  // namespace

Result<std::vector<std::int64_t>> sizes_of(const Problem& problem) {
  std::vector<std::int64_t> sizes;
  for (const auto& name : problem.op->dimensions) {
    auto found = problem.bindings.find(name);
    if (found == problem.bindings.end())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--shape has no {0}, expected {0}=SIZE", name));
    sizes.push_back(found->second);
  }
  return sizes;
}

Result<Fetched> fetch(const Session& session, const Problem& problem, const jit::Wishes& wishes) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto sizes, as_usage(session, sizes_of(problem)));
  if (session.options.no_daemon) return from_store(session, problem, wishes);
  client::DaemonProgram program;
  program.socket = session.socket();
  program.device = session.options.device;
  program.cache = session.options.cache;
  program.user = session.options.daemon_uid;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto daemon,
                              client::connect_or_start(program, "tilewright", kAnswerTimeout));
  protocol::Get get;
  get.problem.operator_text = templates::print(*problem.op);
  get.problem.sizes = std::move(sizes);
  get.problem.wishes = wishes;
  get.want_images = false;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto answer, daemon.call(get, kAnswerTimeout));
  auto* plan = std::get_if<protocol::Plan>(&answer.message);
  if (!plan) return fail(ErrorCode::kCorrupt, "the daemon answered a get with another frame");
  Fetched fetched;
  TILEWRIGHT_ASSIGN_OR_RETURN(fetched.plan, jit::unpack_plan(plan->plan));
  if (!plan->narrow.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(fetched.narrow, jit::unpack_plan(plan->narrow));
  }
  fetched.answer = std::move(*plan);
  return fetched;
}

}  // namespace tilewright::cli
