#include "daemon/reply_cache.h"

#include <algorithm>
#include <set>
#include <utility>

namespace tilewright::daemon {
namespace {

constexpr std::size_t kOverhead = 512;  ///< of the lists, the maps and the descriptor, about

std::size_t bytes_of(const Reply& reply) {
  return reply.with_images.size() + reply.without_images.size() + reply.file_bytes + kOverhead;
}

}  // namespace

Digest ReplyCache::request_digest(const protocol::Problem& problem) {
  Hasher hasher;
  hasher.add(problem.operator_text).add(problem.device.high).add(problem.device.low);
  for (std::int64_t size : problem.sizes) hasher.add(std::uint64_t(size));
  auto said = [](std::optional<bool> wish) { return std::uint64_t(!wish ? 0 : *wish ? 1 : 2); };
  const jit::Wishes& wishes = problem.wishes;
  hasher.add(wishes.objective).add(said(wishes.graph)).add(said(wishes.warm_l2));
  return hasher.finish();
}

std::shared_ptr<const Reply> ReplyCache::find(const Digest& request) {
  std::lock_guard lock(mutex_);
  auto found = by_request_.find(request);
  if (found == by_request_.end()) return nullptr;
  items_.splice(items_.begin(), items_, found->second);
  return found->second->reply;
}

std::uint64_t ReplyCache::generation(const Digest& problem) const {
  std::lock_guard lock(mutex_);
  return generation_locked(problem);
}

std::uint64_t ReplyCache::generation_locked(const Digest& problem) const {
  auto found = generations_.find(problem);
  return std::max(floor_, found == generations_.end() ? 0 : found->second);
}

void ReplyCache::put(const Digest& request, std::shared_ptr<const Reply> reply,
                     std::uint64_t generation) {
  std::lock_guard lock(mutex_);
  if (generation_locked(reply->problem) != generation) return;
  if (auto known = by_request_.find(request); known != by_request_.end()) drop(known->second);
  std::size_t bytes = bytes_of(*reply);
  std::size_t files = reply->file ? 1 : 0;
  if (bytes > cap_bytes_ || files > cap_files_) return;
  while (bytes_ + bytes > cap_bytes_ || files_ + files > cap_files_) drop(std::prev(items_.end()));
  items_.push_front({request, std::move(reply)});
  by_request_[request] = items_.begin();
  bytes_ += bytes;
  files_ += files;
}

void ReplyCache::forget(const Digest& problem, const std::function<bool(const Reply&)>& stale) {
  std::lock_guard lock(mutex_);
  if (generations_.size() >= kMaxGenerations) {
    generations_.clear();
    floor_ = ++forgets_;
  }
  generations_[problem] = ++forgets_;
  for (auto item = items_.begin(); item != items_.end();) {
    auto here = item++;
    if (here->reply->problem == problem && stale(*here->reply)) drop(here);
  }
}

void ReplyCache::forget_all() {
  std::lock_guard lock(mutex_);
  generations_.clear();
  floor_ = ++forgets_;
  items_.clear();
  by_request_.clear();
  bytes_ = files_ = 0;
}

ReplyCache::Size ReplyCache::size() const {
  std::lock_guard lock(mutex_);
  std::set<std::pair<Digest, std::map<std::string, std::int64_t>>> untuned;
  for (const Item& item : items_)
    if (item.reply->untuned) untuned.emplace(item.reply->problem, item.reply->bindings);
  return {items_.size(), bytes_, files_, untuned.size()};
}

void ReplyCache::drop(std::list<Item>::iterator item) {
  bytes_ -= bytes_of(*item->reply);
  files_ -= item->reply->file ? 1 : 0;
  by_request_.erase(item->request);
  items_.erase(item);
}

}  // namespace tilewright::daemon
