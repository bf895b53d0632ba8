// What a candidate costs before it is measured.
//
//   generate/GROUP/FAMILY     writing source and launch rules of one config: bar 0.3 ms
//   nvrtc/empty_kernel        PTX and cubin of a kernel that does nothing
//   nvrtc/GROUP/FAMILY        PTX and cubin of the safe config; `ratio` to the empty kernel, of this run

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "jit/compiler.h"
#include "templates/families/family.h"
#include "templates/headers.h"
#include "templates/operator/group.h"
#include "templates/operator/parse.h"

namespace tilewright {
namespace {

using templates::Family;
using templates::Operator;

template <typename T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::cerr << result.error().message << "\n" << result.error().detail << "\n";
  std::exit(1);
}

struct Case {
  std::string name;
  Operator group;
  templates::Bindings bindings;
  const Family* family;
};

std::vector<Case> cases() {
  std::vector<Case> found;
  for (const char* name : {"swiglu", "mlp_up", "add_rmsnorm", "softmax", "pointwise_chain"}) {
    auto file = std::string(TILEWRIGHT_SOURCE_DIR "/configs/operators/") + name + ".yaml";
    auto op = need(templates::load_operator(file));
    for (const Family* family : templates::families())
      if (family->accepts(op))
        found.push_back({fmt::format("{}/{}", name, family->name()), op, {{"M", 16}}, family});
  }
  return found;
}

templates::Generated generate(const Case& c) {
  return need(c.family->generate(c.group, c.family->safe_config(c.group, c.bindings),
                                 templates::Facts::of_allocation(c.group, c.bindings)));
}

jit::CompileOptions options() {
  jit::CompileOptions options;
  options.architecture = {9, 0, true};
  return options;
}

double compile_ms(jit::Compiler& compiler, const jit::Source& source) {
  auto start = std::chrono::steady_clock::now();
  need(compiler.compile(source, options()));
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  using namespace tilewright;
  auto compiler = need(jit::Compiler::open(templates::device_headers()));
  const jit::Source empty{"empty.cu", "extern \"C\" __global__ void empty() {}\n"};
  compile_ms(compiler, empty);  // the first compile of a process is slower
  double empty_ms = 1e9;
  for (int i = 0; i < 5; ++i) empty_ms = std::min(empty_ms, compile_ms(compiler, empty));

  benchmark::RegisterBenchmark("nvrtc/empty_kernel", [&](benchmark::State& state) {
    for (auto _ : state) compile_ms(compiler, empty);
  })->Unit(benchmark::kMillisecond);
  auto all = cases();
  for (const auto& c : all) {
    benchmark::RegisterBenchmark(("generate/" + c.name).c_str(), [&c](benchmark::State& state) {
      for (auto _ : state) benchmark::DoNotOptimize(generate(c));
    })->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("nvrtc/" + c.name).c_str(), [&](benchmark::State& state) {
      auto source = generate(c).source;
      double best = 1e9;
      for (auto _ : state) best = std::min(best, compile_ms(compiler, source));
      state.counters["ratio"] = best / empty_ms;
    })->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
