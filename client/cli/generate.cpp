// tilewright generate: what one config of one family becomes: source, PTX, resources.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "client/cli/session.h"
#include "jit/plan_json.h"
#include "templates/operator/group.h"

namespace tilewright::cli {
namespace {

struct GenerateOptions {
  std::filesystem::path file;
  std::string shape, model, family, config, group, emit = "source", architecture;
  bool unaligned = false;
};

/// The operator itself, or the statements that make the values named in `names` ("gate,up,y").
Result<templates::Operator> select_group(const templates::Operator& op, const std::string& names) {
  if (names.empty()) return op;
  std::vector<int> statements;
  std::stringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    auto value = op.find(name);
    const auto* producer = value ? op.producer(*value) : nullptr;
    if (!producer) {
      std::string known;
      for (const auto& statement : op.statements)
        known += (known.empty() ? "" : ", ") + op.value(statement.result).name;
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--group names '{}', expected some of {}", name, known));
    }
    statements.push_back(int(producer - op.statements.data()));
  }
  std::sort(statements.begin(), statements.end());
  statements.erase(std::unique(statements.begin(), statements.end()), statements.end());
  return templates::extract_group(op, statements);
}

Result<const templates::Family*> select_family(const templates::Operator& group,
                                               const std::string& name) {
  std::string reasons, names;
  for (const auto* family : templates::families()) {
    names += (names.empty() ? "" : ", ") + std::string(family->name());
    if (!name.empty() && family->name() != name) continue;
    auto accepted = family->accepts(group);
    if (accepted) return family;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", family->name(),
                           accepted.error().message);
  }
  if (reasons.empty())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--family is '{}', expected one of {}", name, names));
  return fail(ErrorCode::kUnsupported, reasons);
}

/// "block_m=64,stages=2" over the safe config.
Result<templates::Config> parse_config(const std::string& text, templates::Config config) {
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    auto equals = item.find('=');
    auto name = item.substr(0, equals);
    auto known = config.find(name);
    if (equals == std::string::npos || known == config.end()) {
      std::string names;
      for (const auto& [tunable, value] : config) names += (names.empty() ? "" : ", ") + tunable;
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--config has '{}', expected NAME=VALUE with a name of {}", item, names));
    }
    TILEWRIGHT_ASSIGN_OR_RETURN(auto value, jit::Expression::parse(item.substr(equals + 1)));
    if (!value.as_constant())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--config has '{}', expected a number", item));
    known->second = *value.as_constant();
  }
  return config;
}

void print_text(const GenerateOptions& options, const templates::Generated& generated,
                const jit::Image& image) {
  if (options.emit == "source") std::cout << generated.comment << generated.source.text;
  if (options.emit == "ptx") std::cout << image.ptx;
  if (options.emit == "plan") std::cout << jit::to_json(generated.plan).dump(2) << "\n";
  if (options.emit == "resources")
    for (const auto& kernel : image.kernels)
      std::cout << fmt::format(
          "{:<32} {:>3} registers, {:>6} bytes shared, {} / {} bytes spilled, image {}, {:.0f} "
          "ms\n",
          kernel.kernel, kernel.registers, kernel.static_shared_bytes, kernel.spill_store_bytes,
          kernel.spill_load_bytes, image.digest.hex(), image.compile_ms);
}

nlohmann::json to_json(const templates::Family& family, const templates::Config& config,
                       const templates::Generated& generated, const jit::Image& image) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const auto& kernel : image.kernels)
    kernels.push_back({{"kernel", kernel.kernel},
                       {"registers", kernel.registers},
                       {"shared_bytes", kernel.static_shared_bytes},
                       {"spill_store_bytes", kernel.spill_store_bytes},
                       {"spill_load_bytes", kernel.spill_load_bytes}});
  return {{"family", family.name()},
          {"config", config},
          {"architecture", image.architecture.name()},
          {"comment", generated.comment},
          {"source", generated.source.text},
          {"ptx", image.ptx},
          {"plan", jit::to_json(generated.plan)},
          {"image", image.digest.hex()},
          {"kernels", kernels},
          {"compile_ms", image.compile_ms}};
}

Result<void> generate(Session& session, const GenerateOptions& options) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto problem,
                              session.problem(options.file, options.shape, options.model));
  TILEWRIGHT_ASSIGN_OR_RETURN(auto group,
                              as_usage(session, select_group(*problem.op, options.group)));
  TILEWRIGHT_ASSIGN_OR_RETURN(const auto* family,
                              as_usage(session, select_family(group, options.family)));
  TILEWRIGHT_ASSIGN_OR_RETURN(
      auto config, as_usage(session, parse_config(options.config,
                                                  family->safe_config(group, problem.bindings))));
  auto facts = options.unaligned ? templates::Facts::unaligned(group)
                                 : templates::Facts::of_allocation(group, problem.bindings);
  TILEWRIGHT_ASSIGN_OR_RETURN(auto generated,
                              as_usage(session, family->generate(group, config, facts)));

  jit::CompileOptions compile;
  if (options.architecture.empty()) {
    TILEWRIGHT_ASSIGN_OR_RETURN(auto choice, session.device());
    TILEWRIGHT_ASSIGN_OR_RETURN(auto driver, jit::Driver::open(choice.driver));
    compile.architecture = driver->device(choice.ordinal).architecture();
  } else {
    TILEWRIGHT_ASSIGN_OR_RETURN(compile.architecture,
                                as_usage(session, jit::Architecture::parse(options.architecture)));
  }
  TILEWRIGHT_ASSIGN_OR_RETURN(auto compiler, session.compiler());
  TILEWRIGHT_ASSIGN_OR_RETURN(auto image, compiler->compile(generated.source, compile));
  if (session.options.json)
    std::cout << to_json(*family, config, generated, image).dump() << "\n";
  else
    print_text(options, generated, image);
  return {};
}

}  // namespace

void add_generate(CLI::App& app, Session& session) {
  auto options = std::make_shared<GenerateOptions>();
  auto* command = app.add_subcommand("generate", "Write and compile one config of one family");
  command->add_option("operator", options->file, "Operator file")->required();
  command->add_option("--shape", options->shape, "M=16,N=512: parameters and dynamic dimensions");
  command->add_option("--model", options->model, "A parameter set of the file's models section");
  command->add_option("--family", options->family, "Family; the first that accepts the group");
  command->add_option("--config", options->config, "block_m=64,...: changes to the safe config");
  command->add_option("--group", options->group, "gate,up,y: the statements of one kernel");
  command->add_option("--emit", options->emit, "source, ptx, plan or resources")
      ->check(CLI::IsMember({"source", "ptx", "plan", "resources"}));
  command->add_option("--arch", options->architecture, "sm_90a; the device's");
  command->add_flag("--unaligned", options->unaligned, "Assume nothing of addresses and strides");
  command->callback([&session, options] {
    if (auto done = generate(session, *options); !done) session.report(done.error());
  });
}

}  // namespace tilewright::cli
