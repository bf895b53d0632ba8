#include "daemon/service.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "daemon/plan_version.h"
#include "daemon/protocol/image_bundle.h"
#include "jit/locations.h"
#include "templates/operator/parse.h"

namespace tilewright::daemon {
namespace {

constexpr std::size_t kMaxOperators = 10'000;

/// Half of what the process may open beside its connections: the rest is the store's and others'.
std::size_t reply_files(const Config& config) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 1 << 16;
  auto connections = rlim_t(config.socket.max_connections);
  rlim_t left = limit.rlim_cur > connections ? (limit.rlim_cur - connections) / 2 : 0;
  return std::size_t(std::clamp<rlim_t>(left, 16, 1 << 16));
}

/// Between two attempts to have the same fallback tuned.
constexpr std::chrono::seconds kAskAgain{1};

std::string title_of(const Problem& problem) {
  std::string title = problem.op->name;
  for (const std::string& dimension : problem.op->dimensions)
    title += fmt::format(" {}={}", dimension, problem.bindings.at(dimension));
  return title;
}

std::vector<Digest> images_of(const cache::Entry& entry) {
  cache::Record record;
  record.entries = {entry};
  return record.images();
}

}  // namespace

Service::Service(const Config& config, cache::Store& store, Planner& planner)
    : config_(config),
      store_(store),
      planner_(planner),
      replies_(config.cache.reply_bytes, reply_files(config)),
      scheduler_(
          {std::size_t(config.tune.queue),
           std::chrono::milliseconds(std::int64_t(config.tune.retry_after_s * 1000)),
           [this](const Problem& problem) {
             std::optional<cache::Entry> nearest;
             auto known = stored(problem, nearest);
             return known && *known &&
                    source_of((*known)->entry, problem.conditions) == protocol::Source::kHit;
           }},
          [this](const Problem& problem, const TuneSettings& settings,
                 const std::function<void(const TuneStep&)>& progress,
                 std::stop_token stop) { return planner_.tune(problem, settings, progress, stop); },
          [this](const TuneKey&, const Problem& problem, const Result<TuneOutcome>& outcome) {
            if (!outcome) {
              spdlog::warn("tune of {} failed: {}", problem.op->name, outcome.error().message);
            } else if (outcome->stored) {
              refresh(problem.key.problem);
            } else if (outcome->failed) {
              spdlog::warn("tune of {} found nothing: no candidate survived", problem.op->name);
            }
          }) {}

Service::~Service() { stop(); }

protocol::Welcome Service::welcome() const {
  protocol::Welcome welcome;
  welcome.server = "tilewrightd";
  welcome.pid = getpid();
  welcome.max_frame_bytes = std::uint32_t(config_.socket.max_frame_bytes);
  const jit::DeviceInfo& device = planner_.device();
  welcome.devices = {{device.name, device.key(), device.virtual_gpu}};
  std::error_code ignored;
  welcome.cache = std::filesystem::absolute(
      config_.cache.folder.empty() ? jit::default_cache_folder() : config_.cache.folder, ignored);
  welcome.configs = planner_.configs().string();
  welcome.generator = planner_.generator();
  welcome.nvrtc_version = planner_.nvrtc_version();
  welcome.conditions = config_.tune.conditions;
  return welcome;
}

TuneSettings Service::settings() const {
  return {config_.tune.evaluations, config_.tune.seconds, config_.tune.strategy, config_.tune.seed};
}

Result<Problem> Service::understand(const protocol::Problem& asked) {
  const jit::DeviceInfo& device = planner_.device();
  if (!asked.device.empty() && asked.device != device.key()) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("device is {}, expected {} ({})", asked.device.hex(),
                            device.key().hex(), device.name));
  }
  Problem problem;
  TILEWRIGHT_ASSIGN_OR_RETURN(problem.conditions, asked.wishes.over(config_.tune.conditions));
  if (device.virtual_gpu && problem.conditions.objective == jit::Objective::kEnergy) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("objective is energy on {}, which is virtual, expected a real device",
                            device.name));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(templates::Operator parsed,
                              templates::parse_operator(asked.operator_text, "request"));
  auto op = std::make_shared<const templates::Operator>(std::move(parsed));
  if (asked.sizes.size() != op->dimensions.size()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("request has {} sizes, expected {}: one per dynamic dimension of {}",
                            asked.sizes.size(), op->dimensions.size(), op->name));
  }
  for (std::size_t i = 0; i < asked.sizes.size(); ++i) {
    if (asked.sizes[i] < 0) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("size of {} is {}, expected at least 0",
                                                           op->dimensions[i], asked.sizes[i]));
    }
  }
  problem.key = cache::Key::of(*op, device);
  std::shared_ptr<const templates::Operator> known;
  {
    std::lock_guard lock(mutex_);
    auto found = operators_.find(problem.key.problem);
    if (found != operators_.end()) known = found->second;
  }
  if (!known) {
    // Of a record, its own operator: then its plans and its ranges speak of the same dimensions.
    auto record = store_.get(problem.key);
    if (record && *record && !(*record)->entries.empty()) {
      auto stored = templates::parse_operator((*record)->key.operator_text, "record");
      if (stored && stored->dimensions.size() == op->dimensions.size())
        known = std::make_shared<const templates::Operator>(std::move(*stored));
    }
    if (!known) known = op;
    std::lock_guard lock(mutex_);
    if (operators_.size() >= kMaxOperators) operators_.clear();
    known = operators_.emplace(problem.key.problem, known).first->second;
  }
  problem.op = known;
  problem.key = cache::Key::of(*known, device);
  for (std::size_t i = 0; i < asked.sizes.size(); ++i)
    problem.bindings[known->dimensions[i]] = asked.sizes[i];
  TILEWRIGHT_TRY(templates::check_sizes(*known, problem.bindings));
  return problem;
}

TuneKey Service::tune_key(const Problem& problem) {
  Hasher hasher;
  hasher.add(problem.key.problem.hex());
  for (const std::string& dimension : problem.op->dimensions)
    hasher.add(std::uint64_t(problem.bindings.at(dimension)));
  hasher.add(jit::to_text(problem.conditions));
  return hasher.finish();
}

std::shared_ptr<const Reply> Service::find(const protocol::Problem& problem) {
  ++counters_.gets;
  auto reply = replies_.find(ReplyCache::request_digest(problem));
  if (!reply) return reply;
  ++counters_.memory_hits;
  if (reply->untuned) want_tune(*reply);
  return reply;
}

bool Service::tunes_in_background() const {
  return config_.tune.background && config_.tune.when != "never";
}

void Service::want_tune(const Reply& reply) {
  if (!tunes_in_background()) return;
  auto now = std::chrono::steady_clock::now();
  auto pause = std::min<std::chrono::steady_clock::duration>(
      kAskAgain, std::chrono::milliseconds(std::int64_t(config_.tune.retry_after_s * 1000)));
  auto due = reply.ask_again.load();
  if (now.time_since_epoch().count() < due ||
      !reply.ask_again.compare_exchange_strong(due, (now + pause).time_since_epoch().count()))
    return;
  scheduler_.background(tune_key(*reply.untuned), *reply.untuned, settings());
}

void Service::get(const protocol::Problem& asked, ReplyDone done) {
  Digest request = ReplyCache::request_digest(asked);
  auto problem = understand(asked);
  if (!problem) {
    ++counters_.failures;
    return done(fail(std::move(problem.error())));
  }
  TuneKey key = tune_key(*problem);
  {
    std::lock_guard lock(mutex_);
    auto [flight, first] = flights_.try_emplace(key);
    flight->second.waiting.emplace_back(request, std::move(done));
    if (!first) {
      ++counters_.joined;
      return;
    }
  }
  // Another flight may have landed between find() and here.
  std::uint64_t generation = replies_.generation(problem->key.problem);
  auto known = replies_.find(request);
  auto reply = known ? Result<std::shared_ptr<const Reply>>(known) : make_reply(*problem);
  if (reply) replies_.put(request, *reply, generation);
  Flight flight;
  {
    std::lock_guard lock(mutex_);
    flight = std::move(flights_[key]);
    flights_.erase(key);
  }
  if (!reply) ++counters_.failures;
  for (auto& [digest, callback] : flight.waiting) {
    if (reply && digest != request) replies_.put(digest, *reply, generation);
    callback(reply);
  }
}

std::set<Digest> Service::other_devices() {
  {
    std::lock_guard lock(mutex_);
    if (other_devices_) return *other_devices_;
  }
  std::set<Digest> devices;
  const Digest here = planner_.device().key();
  auto read = store_.each([&](const cache::Record& record) {
    if (record.key.device != here) devices.insert(record.key.device);
    return true;
  });
  if (!read) spdlog::error("cache: {}", read.error().message);
  std::lock_guard lock(mutex_);
  other_devices_ = devices;
  return devices;
}

std::optional<cache::Entry> Service::nearest_elsewhere(const Problem& problem) {
  std::optional<cache::Entry> nearest;
  for (const Digest& device : other_devices()) {
    cache::Key key;
    key.problem = cache::problem_digest(*problem.op, device);
    auto record = store_.get(key);
    if (!record || !*record) continue;
    const cache::Entry* entry = (*record)->nearest(problem.bindings, problem.conditions);
    if (entry && (!nearest || (nearest->evidence.modelled && !entry->evidence.modelled)))
      nearest = *entry;
  }
  return nearest;
}

Result<std::optional<Planned>> Service::stored(const Problem& problem,
                                               std::optional<cache::Entry>& nearest) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto record, store_.get(problem.key));
  if (!record) {
    nearest = nearest_elsewhere(problem);
    return std::optional<Planned>();
  }
  return planned_of(*record, problem, nearest);
}

Result<std::optional<Planned>> Service::planned_of(const cache::Record& record,
                                                   const Problem& problem,
                                                   std::optional<cache::Entry>& nearest) {
  if (const cache::Entry* entry = record.nearest(problem.bindings, problem.conditions))
    nearest = *entry;
  if (record.generator != planner_.generator()) return std::optional<Planned>();
  const cache::Entry* entry = record.find(problem.bindings, problem.conditions);
  if (!entry) return std::optional<Planned>();
  Planned planned;
  planned.entry = *entry;
  for (const Digest& digest : images_of(*entry)) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto image, store_.image(digest));
    if (!image) {
      // Evicted. The entry is a miss, and its configs are what the fallback compiles again.
      ++counters_.lost_images;
      nearest = *entry;
      return std::optional<Planned>();
    }
    planned.images.push_back(std::make_shared<const jit::Image>(std::move(*image)));
  }
  return std::optional<Planned>(std::move(planned));
}

Result<std::shared_ptr<const Reply>> Service::make_reply(const Problem& problem) {
  std::optional<cache::Entry> nearest;
  auto known = stored(problem, nearest);
  if (!known) {
    // A damaged record must not cost an answer; it is replaced by the tune.
    spdlog::error("cache: {}", known.error().message);
  } else if (*known) {
    protocol::Source source = source_of((*known)->entry, problem.conditions);
    ++(source == protocol::Source::kHit ? counters_.hits : counters_.others);
    TILEWRIGHT_ASSIGN_OR_RETURN(auto reply, pack(problem, **known, source));
    if (reply->untuned) want_tune(*reply);
    return reply;
  }
  auto planned = planner_.fallback(problem, nearest ? &*nearest : nullptr);
  if (!planned) {
    if (tunes_in_background()) scheduler_.background(tune_key(problem), problem, settings());
    return fail(std::move(planned.error()));
  }
  ++counters_.fallbacks;
  if (!planned->entry.evidence.verified) ++counters_.unverified_fallbacks;
  TILEWRIGHT_ASSIGN_OR_RETURN(auto reply, pack(problem, *planned, protocol::Source::kFallback));
  // Once for each size, and not for each request: replies are kept.
  spdlog::log(tunes_in_background() ? spdlog::level::info : spdlog::level::warn,
              "{} is served untuned, with {}: {}", title_of(problem),
              nearest ? "the nearest configs that are known" : "safe configs",
              tunes_in_background() ? "to be tuned in the background"
                                    : "nothing is tuned in the background");
  want_tune(*reply);
  return reply;
}

Result<std::shared_ptr<const Reply>> Service::pack(const Problem& problem, const Planned& planned,
                                                   protocol::Source source) const {
  auto reply = std::make_shared<Reply>();
  protocol::Plan plan;
  plan.problem = problem.key.problem;
  plan.source = source;
  plan.verified = planned.entry.evidence.verified;
  plan.modelled = planned.entry.evidence.modelled;
  // Inside of its range most sizes were not measured: no time is claimed for those.
  if (auto point = cache::measured_at(planned.entry.evidence, problem.bindings)) {
    plan.time_us = point->time_us;
    plan.baseline_us = point->baseline_us;
  }
  if (source != protocol::Source::kFallback) plan.conditions = planned.entry.evidence.conditions;
  plan.plan = jit::pack(planned.entry.plan);
  plan.narrow = pack_narrow(planned.entry);
  plan.plan_version = version_of(plan.plan, plan.narrow);
  plan.groups = planned.entry.groups;
  plan.images = images_of(planned.entry);
  reply->problem = plan.problem;
  reply->bindings = problem.bindings;
  reply->conditions = problem.conditions;
  reply->plan_version = plan.plan_version;
  reply->source = source;
  if (source != protocol::Source::kHit) reply->untuned = problem;
  reply->images = plan.images;
  reply->without_images = protocol::encode_body(plan);
  if (!planned.images.empty()) {
    auto code =
        planner_.device().virtual_gpu ? protocol::ImageCode::kPtx : protocol::ImageCode::kCubin;
    std::string images = protocol::pack_images(planned.images, code);
    TILEWRIGHT_ASSIGN_OR_RETURN(reply->file,
                                protocol::make_memory_file("tilewright-images", images));
    reply->file_bytes = images.size();
  }
  plan.image_bytes = reply->file_bytes;
  reply->with_images = protocol::encode_body(plan);
  return std::shared_ptr<const Reply>(std::move(reply));
}

Result<std::uint64_t> Service::tune(const protocol::Tune& request, Scheduler::Listener listener) {
  TILEWRIGHT_ASSIGN_OR_RETURN(Problem problem, understand(request.problem));
  TuneSettings settings = this->settings();
  if (request.evaluations > 0) settings.evaluations = request.evaluations;
  if (request.seconds != 0) settings.seconds = std::max(request.seconds, 0.0);
  if (!request.strategy.empty()) settings.strategy = request.strategy;
  settings.seed = request.seed;
  settings.replace = request.replace;
  settings.precision = request.precision;
  settings.when = request.when;
  if (request.sample_blocks >= 0) settings.sample_blocks = std::uint64_t(request.sample_blocks);
  return scheduler_.request(tune_key(problem), problem, settings, request.priority,
                            std::move(listener));
}

namespace {

Result<Service::ExportedFile> exported(std::uint64_t lines, const std::string& text) {
  Service::ExportedFile file;
  file.lines = lines;
  file.bytes = text.size();
  // Without bytes no file comes with the frame.
  if (text.empty()) return file;
  TILEWRIGHT_ASSIGN_OR_RETURN(file.file, protocol::make_memory_file("tilewright-export", text));
  return file;
}

}  // namespace

Result<Service::ExportedFile> Service::export_lines() const {
  std::ostringstream out;
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto lines, cache::export_lines(store_, out));
  return exported(lines, std::move(out).str());
}

Result<Service::ExportedFile> Service::failed_trials(const std::string& prefix) {
  TILEWRIGHT_ASSIGN_OR_RETURN(const std::string lines, planner_.failed_trials(prefix));
  return exported(std::uint64_t(std::count(lines.begin(), lines.end(), '\n')), lines);
}

Result<std::string> Service::trial(const std::string& id) const {
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto stored, store_.trial(id));
  if (!stored) return fail(ErrorCode::kNotFound, fmt::format("no trial {} is known", id));
  return stored->body;
}

Result<cache::ImportCounts> Service::import_lines(const std::string& lines) {
  std::istringstream in(lines);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto counts,
                              cache::import_lines(store_, in, "import", planner_.generator()));
  {
    std::lock_guard lock(mutex_);
    other_devices_.reset();
  }
  refresh({});
  return counts;
}

protocol::Statistics Service::statistics() const {
  protocol::Statistics statistics;
  auto add = [&](const char* name, double value) { statistics.counters.push_back({name, value}); };
  add("gets", double(counters_.gets));
  add("memory_hits", double(counters_.memory_hits));
  add("hits", double(counters_.hits));
  add("other_conditions", double(counters_.others));
  add("fallbacks", double(counters_.fallbacks));
  add("fallbacks_unverified", double(counters_.unverified_fallbacks));
  add("joined", double(counters_.joined));
  add("failures", double(counters_.failures));
  add("lost_images", double(counters_.lost_images));
  add("subscribers", double(subscribers()));
  add("notifications", double(counters_.notifications));
  SchedulerCounts tunes = scheduler_.counts();
  add("tunes_waiting", double(tunes.waiting));
  add("tunes_running", double(tunes.running));
  add("tunes_finished", double(tunes.finished));
  add("tunes_failed", double(tunes.failed));
  add("tunes_interrupted", double(tunes.interrupted));
  add("tunes_refused", double(tunes.refused));
  add("tunes_in_background", tunes_in_background() ? 1 : 0);
  ReplyCache::Size replies = replies_.size();
  add("untuned", double(replies.untuned));
  add("replies", double(replies.replies));
  add("reply_bytes", double(replies.bytes));
  add("reply_files", double(replies.files));
  if (auto store = store_.statistics()) {
    add("records", double(store->records));
    add("images", double(store->images));
    add("trials", double(store->trials));
    add("cache_bytes", double(store->bytes));
    add("cache_cap_bytes", double(store->cap_bytes));
    add("evicted_images", double(store->evicted_images));
    add("trial_bytes", double(store->trial_bytes));
    add("evicted_trials", double(store->evicted_trials));
    add("damaged", double(store->damaged));
  }
  return statistics;
}

}  // namespace tilewright::daemon
