// tilewright cache: what is remembered: list, show, export, import, statistics.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client/cli/cache_access.h"
#include "client/cli/print_json.h"
#include "client/cli/session.h"

namespace tilewright::cli {
namespace {

std::string ranges_text(const jit::Plan& plan) {
  std::string text;
  for (const auto& [name, range] : plan.chosen_for)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name,
                        range.low == range.high ? std::to_string(range.low)
                                                : fmt::format("{}..{}", range.low, range.high));
  return text;
}

void print_record(const cache::Record& record) {
  auto name = record.key.operator_text.substr(0, record.key.operator_text.find('\n'));
  std::cout << fmt::format("{}  {}  {}\n", record.key.problem.hex(), record.key.device_name, name);
  for (const auto& entry : record.entries) {
    const auto& evidence = entry.evidence;
    std::cout << fmt::format(
        "    {:<16} {}: {:>10.2f} us {}, baseline {:.2f} us, margin {:.1f} %, {}\n",
        ranges_text(entry.plan), jit::to_text(evidence.conditions), evidence.time_us,
        evidence.modelled ? "modelled" : "measured", evidence.baseline_us, 100 * evidence.margin,
        evidence.verified ? "verified" : "not verified");
    for (const auto& group : entry.groups) std::cout << "        " << group << "\n";
  }
}

/// Records whose problem begins with `prefix`; all for an empty one.
Result<std::vector<cache::Record>> records(const cache::Store& store, const std::string& prefix) {
  std::vector<cache::Record> found;
  TILEWRIGHT_TRY(store.each([&](const cache::Record& record) {
    if (record.key.problem.hex().starts_with(prefix)) found.push_back(record);
    return true;
  }));
  if (found.empty() && !prefix.empty())
    return fail(ErrorCode::kNotFound, fmt::format("no record begins with {}", prefix));
  return found;
}

Result<void> list(Session& session, const std::string& prefix) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto cache, CacheAccess::for_reading(session));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto found, records(cache.store(), prefix));
  if (session.options.json) {
    nlohmann::json array = nlohmann::json::array();
    for (const auto& record : found) array.push_back(nlohmann::json::parse(to_json(record)));
    print_json(array);
    return {};
  }
  for (const auto& record : found) print_record(record);
  if (found.empty()) std::cout << "no records in " << session.cache_folder().string() << "\n";
  return {};
}

Result<void> statistics(Session& session) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto cache, CacheAccess::for_writing(session));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto count, cache.statistics());
  if (session.options.json)
    print_json({{"records", count.records},
                {"images", count.images},
                {"trials", count.trials},
                {"bytes", count.bytes},
                {"trial_bytes", count.trial_bytes},
                {"cap_bytes", count.cap_bytes},
                {"evicted_images", count.evicted_images},
                {"evicted_trials", count.evicted_trials},
                {"damaged", count.damaged}});
  else
    std::cout << fmt::format(
        "{} records, {} images, {} trials, {:.1f} of {:.1f} MiB, {} images and {} trials evicted\n",
        count.records, count.images, count.trials, count.bytes / 1048576.0,
        count.cap_bytes / 1048576.0, count.evicted_images, count.evicted_trials);
  return {};
}

Result<void> export_to(Session& session, const std::string& file) {
  if (file == "-" && session.options.json)
    return fail(session.usage(
        {ErrorCode::kInvalidArgument,
         "export was given - and --json, expected a file: what goes to standard output is many "
         "JSON lines, not one value",
         {}}));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto access, CacheAccess::for_reading(session));
  if (file == "-") {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto count, cache::export_lines(access.store(), std::cout));
    std::cerr << count << " lines\n";
    return {};
  }
  std::ofstream out(file, std::ios::binary);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto count, cache::export_lines(access.store(), out));
  out.close();
  if (!out) return fail(ErrorCode::kIo, "cannot write " + file);
  if (session.options.json)
    print_json({{"lines", count}, {"file", file}});
  else
    std::cout << count << " lines in " << file << "\n";
  return {};
}

Result<void> import_from(Session& session, const std::string& file) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto cache, CacheAccess::for_writing(session));
  std::ifstream in(file, std::ios::binary);
  if (!in) return fail(ErrorCode::kNotFound, "cannot read " + file);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto headers, session.headers());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto counts,
                              cache.import(in, file, templates::generator_digest(headers)));
  if (session.options.json)
    print_json({{"file", file},
                {"taken", counts.taken},
                {"kept", counts.kept},
                {"other_generator", counts.other_generator},
                {"without_images", counts.without_images},
                {"images", counts.images}});
  else
    std::cout << file << ": " << cache::to_text(counts) << "\n";
  return {};
}

}  // namespace

void add_cache(CLI::App& app, Session& session) {
  auto text = std::make_shared<std::string>();
  auto* cache = app.add_subcommand("cache", "What is remembered");
  cache->require_subcommand(1);
  auto run = [&session](const std::function<Result<void>()>& command) {
    if (auto done = command(); !done) session.report(done.error());
  };
  cache->add_subcommand("list", "Records and what they chose")->callback([&session, run] {
    run([&] { return list(session, ""); });
  });
  auto* show = cache->add_subcommand("show", "One record");
  show->add_option("problem", *text, "Its digest, or the beginning of it")->required();
  show->callback([&session, run, text] { run([&] { return list(session, *text); }); });
  cache->add_subcommand("stats", "Counts and bytes")->callback([&session, run] {
    run([&] { return statistics(session); });
  });
  auto* exporting = cache->add_subcommand("export", "Records and images as JSON lines");
  exporting->add_option("file", *text, "- for standard output")->required();
  exporting->callback([&session, run, text] { run([&] { return export_to(session, *text); }); });
  auto* importing = cache->add_subcommand("import", "Reads what export wrote");
  importing->add_option("file", *text)->required();
  importing->callback([&session, run, text] { run([&] { return import_from(session, *text); }); });
}

}  // namespace tilewright::cli
