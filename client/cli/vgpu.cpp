// tilewright vgpu: kernels and programs on the virtual GPU.

#include <CLI/CLI.hpp>
#include <memory>

#include "client/cli/session.h"
#include "client/cli/validators.h"
#include "client/cli/vgpu/command.h"

namespace tilewright::cli {

namespace {

void add_arithmetic(CLI::App& command, ArithmeticFlags& flags) {
  command
      .add_option("--accumulation", flags.accumulation,
                  "How tensor cores add: f32, f64 or truncated")
      ->check(CLI::IsMember({"f32", "f64", "truncated"}));
  command.add_option("--approximate", flags.approximate,
                     "Seed: approximate functions err as far as they may; 0: they do not");
}

}  // namespace

void add_vgpu(CLI::App& app, Session& session) {
  auto* vgpu = app.add_subcommand("vgpu", "Check kernels and run programs on the virtual GPU");
  vgpu->require_subcommand(1);

  auto check_flags = std::make_shared<VgpuCheckFlags>();
  auto* check = vgpu->add_subcommand("check", "Run one kernel, check it, compare what it wrote");
  check->add_option("kernel", check_flags->kernel, "A .cu or .ptx file")->required();
  check->add_option("--launch", check_flags->launch, "The launch specification, YAML")->required();
  check->add_option("--check", check_flags->check, "off, memory or full")
      ->check(CLI::IsMember({"off", "memory", "full"}));
  check->add_option("--arch", check_flags->architecture,
                    "sm_80, sm_90a, ...: what NVRTC compiles for");
  check->add_option("--seed", check_flags->seed, "Of the schedule; 0: the canonical order");
  check->add_option("--seeds", check_flags->seeds, "Schedules to try, from --seed on")
      ->check(at_least(1));
  check->add_option("--size", check_flags->sizes, "NAME=INTEGER, instead of the specification's")
      ->delimiter(',');
  check->add_option("--deadline", check_flags->deadline_s, "Seconds for a launch; 0: no end")
      ->check(CLI::NonNegativeNumber);
  check->add_option("--threads", check_flags->threads, "Host threads, without checks")
      ->check(at_least(1));
  add_arithmetic(*check, check_flags->arithmetic);
  check->callback([&session, check_flags] { run_vgpu_check(session, *check_flags); });

  auto run_flags = std::make_shared<VgpuRunFlags>();
  auto* run = vgpu->add_subcommand("run", "Run a program that uses the CUDA driver API");
  run->add_option("--check", run_flags->check, "off, memory or full")
      ->check(CLI::IsMember({"off", "memory", "full"}));
  run->add_option("--seed", run_flags->seed, "Of the schedule; 0: the canonical order");
  run->add_option("--deadline", run_flags->deadline_s, "Seconds for a launch; 0: no end")
      ->check(CLI::NonNegativeNumber);
  run->add_option("--threads", run_flags->threads, "Host threads, without checks")
      ->check(at_least(1));
  add_arithmetic(*run, run_flags->arithmetic);
  run->add_option("--streams", run_flags->streams,
                  "When streams execute: eager, late or late:SEED; late with --check full");
  run->add_flag("--summary", run_flags->summary, "Print what was launched, and its modelled time");
  run->add_option("--faults", run_flags->faults, "Faults on request: a file, or the text itself");
  run->add_option("--reports", run_flags->reports, "File for reports, a JSON object a line");
  run->add_option("--device", session.options.device, "virtual, or virtual:ID")
      ->check(device_name());
  // The first word that is no flag of ours begins the program; what follows is the program's.
  run->fallthrough(false);
  run->prefix_command();
  run->footer("PROGRAM ARGUMENTS... follow the flags");
  run->callback([&session, run, run_flags] {
    run_flags->program = run->remaining();
    if (run_flags->program.empty())
      return session.report(session.usage({ErrorCode::kInvalidArgument,
                                           "vgpu run has no program, expected PROGRAM ARGUMENTS",
                                           {}}));
    run_vgpu_run(session, *run_flags);
  });
}

}  // namespace tilewright::cli
