// Where the cost model's rates come from.
#include <algorithm>
#include <set>
#include <system_error>

#include "search/cost_model.h"

namespace tilewright::search {

CostModel CostModel::of(const jit::DeviceInfo& device, const std::filesystem::path& configs) {
  std::error_code ignored;
  std::set<std::filesystem::path> files;
  if (!configs.empty())
    for (const auto& entry : std::filesystem::directory_iterator(configs / "devices", ignored))
      if (entry.path().extension() == ".yaml") files.insert(entry.path());
  for (const std::filesystem::path& file : files) {
    auto description = jit::DeviceDescription::load(file);
    // "NVIDIA H200 (virtual)" is described as "NVIDIA H200".
    if (description && !description->info.name.empty() &&
        device.name.starts_with(description->info.name))
      return CostModel(std::move(*description));
  }
  // 128 FMA lanes per SM at 1.5 GHz, and 20 GB/s of DRAM per SM: the middle of what was built since
  // 2018, within a factor of two of each.
  jit::DeviceDescription guess;
  guess.info = device;
  const double sms = std::max(1, device.sm_count);
  guess.fp32_tflops = sms * 128 * 2 * 1.5e-3;
  guess.dram_gbps = sms * 20;
  CostModel model(std::move(guess));
  model.estimated_ = true;
  return model;
}

}  // namespace tilewright::search
