#include "jit/device.h"

#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <sstream>

namespace tilewright::jit {
namespace {

const std::filesystem::path kDevices = TILEWRIGHT_SOURCE_DIR "/configs/devices";

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(DeviceDescription, OfEveryShippedDeviceIsReadAsYamlReadsIt) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kDevices)) {
    ++files;
    auto device = DeviceDescription::load(entry.path());
    ASSERT_TRUE(device) << device.error().message;
    const YAML::Node yaml = YAML::LoadFile(entry.path().string());
    const DeviceInfo& info = device->info;
    EXPECT_EQ(device->id, entry.path().stem().string());
    EXPECT_EQ(info.name, yaml["name"].as<std::string>());
    EXPECT_EQ(device->source, yaml["source"].as<std::string>());
    EXPECT_EQ(std::to_string(info.compute_major) + "." + std::to_string(info.compute_minor),
              yaml["compute_capability"].as<std::string>());
    EXPECT_EQ(info.sm_count, yaml["sm_count"].as<int>());
    EXPECT_EQ(info.memory_bytes, yaml["memory_mib"].as<std::size_t>() << 20);
    EXPECT_EQ(info.l2_bytes, yaml["l2_mib"].as<std::size_t>() << 20);
    EXPECT_EQ(info.shared_per_sm, yaml["shared_per_sm_kib"].as<std::size_t>() << 10);
    EXPECT_EQ(info.shared_per_block_optin, yaml["shared_per_block_kib"].as<std::size_t>() << 10);
    EXPECT_EQ(info.max_threads_per_sm, yaml["max_threads_per_sm"].as<int>());
    EXPECT_EQ(info.max_blocks_per_sm, yaml["max_blocks_per_sm"].as<int>());
    EXPECT_EQ(device->clock_ghz, yaml["clock_ghz"].as<double>());
    EXPECT_EQ(device->dram_gbps, yaml["dram_gbps"].as<double>());
    EXPECT_EQ(device->l2_gbps, yaml["l2_gbps"].as<double>());
    EXPECT_EQ(device->fp32_tflops, yaml["fp32_tflops"].as<double>());
    EXPECT_EQ(device->tensor_tflops, (yaml["tensor_tflops"].as<std::map<std::string, double>>()));
  }
  EXPECT_EQ(files, 5);
}

TEST(DeviceDescription, RatesAgreeWithLanesAndClock) {
  for (const auto& entry : std::filesystem::directory_iterator(kDevices)) {
    auto device = DeviceDescription::load(entry.path());
    ASSERT_TRUE(device);
    const double lanes =
        device->fp32_tflops * 1e3 / (2 * device->info.sm_count * device->clock_ghz);
    const double published =
        device->info.compute_major == 8 && device->info.compute_minor == 0 ? 64 : 128;
    EXPECT_NEAR(lanes, published, 0.02 * published) << device->id;
  }
}

TEST(DeviceDescription, FaultsAreNamedByFileLineValueSeenAndWanted) {
  const std::string good = text_of(kDevices / "l4.yaml");
  struct {
    const char *from, *to, *message;
  } cases[] = {
      {"sm_count: 58", "sm_count: many",
       "x.yaml:5: sm_count is 'many', expected an integer from 1 to 1024"},
      {"sm_count: 58", "sm_count: 0",
       "x.yaml:5: sm_count is '0', expected an integer from 1 to 1024"},
      {"sm_count: 58", "sm_count: 58.5",
       "x.yaml:5: sm_count is '58.5', expected an integer from 1 to 1024"},
      {"sm_count: 58", "", "x.yaml: no 'sm_count', expected an integer from 1 to 1024"},
      {"sm_count: 58", "sm_count: 58\nsm_count: 59",
       "x.yaml:6: 'sm_count' is given twice, first at line 5"},
      {"sm_count: 58", "sm_count 58", "x.yaml:5: line is 'sm_count 58', expected 'key: value'"},
      {"sm_count: 58", "sm_count: [58]", "x.yaml:5: value is '[58]', expected a number or a text"},
      {"sm_count: 58", "  sm_count: 58",
       "x.yaml:5: 'sm_count' is indented, expected it at column 1"},
      {"sm_count: 58", "\tsm_count: 58", "x.yaml:5: tab at the start, expected spaces"},
      {"name: NVIDIA L4", "name: \"NVIDIA L4",
       "x.yaml:2: value is \"NVIDIA L4, expected a closing quote"},
      {"name: NVIDIA L4", "name:", "x.yaml:2: name is empty, expected a text"},
      {"compute_capability: 8.9", "compute_capability: 89",
       "x.yaml:4: compute_capability is '89', expected a capability like 9.0"},
      {"clock_ghz: 2.04", "clock_ghz: nan",
       "x.yaml:13: clock_ghz is 'nan', expected a number from 0.1 to 10"},
      {"  tf32: 60", "  fp32: 60",
       "x.yaml:21: tensor_tflops has type 'fp32', expected one of f64, tf32, f16, bf16, e4m3, "
       "e5m2, i8, i4"},
      {"  tf32: 60", "  tf32: fast",
       "x.yaml:21: tensor_tflops.tf32 is 'fast', expected a number from 0.001 to 1000000"},
      {"shared_per_block_kib: 99", "shared_per_block_kib: 101",
       "x.yaml: shared_per_block_kib is 101, expected at most shared_per_sm_kib, 100"},
  };
  for (const auto& c : cases) {
    std::string text = good;
    const auto at = text.find(c.from);
    ASSERT_NE(at, std::string::npos) << c.from;
    text.replace(at, std::string(c.from).size(), c.to);
    auto parsed = DeviceDescription::parse(text, "x.yaml");
    ASSERT_FALSE(parsed) << c.to;
    EXPECT_EQ(parsed.error().message, c.message);
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  }
  auto unknown = DeviceDescription::parse(good + "sms: 58\n", "x.yaml");
  ASSERT_FALSE(unknown);
  EXPECT_TRUE(unknown.error().message.starts_with(
      "x.yaml:27: unknown key 'sms', expected one of name, source, compute_capability, "))
      << unknown.error().message;
  EXPECT_EQ(DeviceDescription::load("/no/such.yaml").error().code, ErrorCode::kNotFound);
}

TEST(DeviceDescription, CommentsQuotesAndDefaultsAreRead) {
  std::string text = text_of(kDevices / "l4.yaml");
  text += "launch_us: 3.5   # slower\n";
  auto parsed = DeviceDescription::parse(text, "l4.yaml");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->launch_us, 3.5);
  EXPECT_EQ(parsed->special_per_clock_per_sm, 16);
}

TEST(DeviceDescription, ConstantsOfTheTimingModelAreInheritedWhereTheyAreNotGiven) {
  const std::string l4 = text_of(kDevices / "l4.yaml");
  auto parsed = DeviceDescription::parse(l4 + "timing:\n  dram_efficiency: 0.5\n", "l4.yaml");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->timing.dram_efficiency, 0.5);
  EXPECT_EQ(parsed->timing.l2_efficiency, TimingConstants().l2_efficiency);
  const auto message = [&](const std::string& timing) {
    auto wrong = DeviceDescription::parse(l4 + timing, "x.yaml");
    return wrong ? std::string() : wrong.error().message;
  };
  EXPECT_EQ(message("timing:\n  dram_efficiency: 2\n"),
            "x.yaml:28: timing.dram_efficiency is '2', expected a number from 0.4 to 1");
  EXPECT_TRUE(message("timing:\n  speed: 2\n")
                  .starts_with("x.yaml:28: timing has 'speed', expected one of dram_efficiency, "));
  EXPECT_EQ(message("timing: fast\n"),
            "x.yaml:27: timing is 'fast', expected indented lines of 'name: value'");
}

TEST(DeviceDescription, TheH200NamesEveryConstantOfTheTimingModelWithinItsBounds) {
  const YAML::Node yaml = YAML::LoadFile((kDevices / "h200.yaml").string());
  const auto h200 = DeviceDescription::load(kDevices / "h200.yaml");
  ASSERT_TRUE(h200);
  EXPECT_EQ(yaml["timing"].size(), std::size(kTimingConstants));
  for (const TimingConstant& constant : kTimingConstants) {
    EXPECT_EQ(h200->timing.*(constant.value), yaml["timing"][constant.name].as<double>())
        << constant.name;
    // What other devices inherit is the same, rounded.
    EXPECT_NEAR(TimingConstants().*(constant.value), h200->timing.*(constant.value),
                0.06 * h200->timing.*(constant.value))
        << constant.name;
  }
}

TEST(DeviceInfo, CompilesForTheSpecificFormWhereThereIsOne) {
  DeviceInfo info;
  info.compute_major = 8;
  info.compute_minor = 9;
  EXPECT_EQ(info.architecture(), (Architecture{8, 9, false}));
  info.compute_major = 9;
  info.compute_minor = 0;
  EXPECT_EQ(info.architecture(), (Architecture{9, 0, true}));
}

TEST(DeviceInfo, ItsKeyHoldsWhatIdentifiesItAndNoEvidence) {
  const DeviceInfo base = DeviceDescription::load(kDevices / "h200.yaml")->info;
  std::vector<DeviceInfo> others(7, base);
  others[0].name = "NVIDIA H100";
  others[1].compute_minor = 1;
  others[2].sm_count = 114;
  others[3].memory_bytes /= 2;
  others[4].l2_bytes /= 2;
  others[5].mig_profile = "1g.18gb";
  others[6].virtual_gpu = true;
  for (const DeviceInfo& other : others) EXPECT_NE(other.key(), base.key());
  DeviceInfo same = base;
  same.driver_version = "580.1";
  EXPECT_EQ(same.key(), base.key());
}

}  // namespace
}  // namespace tilewright::jit
