// The store on disk, in a temporary folder of this host.
//
//   record_get       a record of two entries by key, unpacked
//   record_put       the same, synced to the disk before it returns
//   image_get        an image of 40 KB that compresses not at all
//   image_put        the same, not synced
//   trial_put        a trial of 1 KB, not synced
//   pack, unpack     the record's bytes alone
#include <benchmark/benchmark.h>

#include "cache/store.h"
#include "tests/cache/samples.h"

namespace tilewright::cache {
namespace {

using namespace testing;  // NOLINT: the samples of the cache's tests

struct Opened {
  TemporaryFolder folder;
  std::unique_ptr<Store> store = value_of(open_rocks_store({folder.path()}));
};

void record_get(benchmark::State& state) {
  Opened opened;
  for (int i = 0; i < 200; ++i) must(opened.store->put(sample_record(i)));
  std::vector<Key> keys;
  for (int i = 0; i < 200; ++i) keys.push_back(sample_record(i).key);
  std::size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(value_of(opened.store->get(keys[i++ % 200])));
}
BENCHMARK(record_get)->Unit(benchmark::kMicrosecond);

void record_put(benchmark::State& state) {
  Opened opened;
  Record record = sample_record(1);
  for (auto _ : state) must(opened.store->put(record));
}
BENCHMARK(record_put)->Unit(benchmark::kMicrosecond);

void image_get(benchmark::State& state) {
  Opened opened;
  for (int i = 0; i < 200; ++i) must(opened.store->put_image(sample_image(i, 40'000)));
  int i = 0;
  for (auto _ : state)
    benchmark::DoNotOptimize(value_of(opened.store->image(sample_digest(i++ % 200))));
}
BENCHMARK(image_get)->Unit(benchmark::kMicrosecond);

void image_put(benchmark::State& state) {
  Opened opened;
  std::vector<jit::Image> images;
  for (int i = 0; i < 64; ++i) images.push_back(sample_image(i, 40'000));
  std::size_t i = 0;
  for (auto _ : state) must(opened.store->put_image(images[i++ % 64]));
}
BENCHMARK(image_put)->Unit(benchmark::kMicrosecond);

void trial_put(benchmark::State& state) {
  Opened opened;
  std::string body(1000, 'x');
  int i = 0;
  for (auto _ : state) must(opened.store->put_trial({std::to_string(i++), body}));
}
BENCHMARK(trial_put)->Unit(benchmark::kMicrosecond);

void pack_record(benchmark::State& state) {
  Record record = sample_record(1);
  for (auto _ : state) benchmark::DoNotOptimize(pack(record));
}
BENCHMARK(pack_record)->Name("pack")->Unit(benchmark::kMicrosecond);

void unpack(benchmark::State& state) {
  std::string bytes = pack(sample_record(1));
  for (auto _ : state) benchmark::DoNotOptimize(value_of(unpack_record(bytes)));
}
BENCHMARK(unpack)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tilewright::cache

BENCHMARK_MAIN();
