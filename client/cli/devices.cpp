// tilewright devices: the GPUs that are here, and those that the virtual GPU can be.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "client/cli/session.h"

namespace tilewright::cli {
namespace {

nlohmann::json to_json(const jit::DeviceInfo& info, const std::string& flag) {
  return {{"device", flag},
          {"name", info.name},
          {"virtual", info.virtual_gpu},
          {"compute", fmt::format("{}.{}", info.compute_major, info.compute_minor)},
          {"sm_count", info.sm_count},
          {"memory_bytes", info.memory_bytes},
          {"l2_bytes", info.l2_bytes},
          {"shared_per_block", info.shared_per_block_optin},
          {"driver", info.driver_version},
          {"key", info.key().hex()}};
}

void list_devices(Session& session) {
  nlohmann::json found = nlohmann::json::array();
  jit::DriverOptions real;
  real.kind = jit::DriverKind::kReal;
  auto driver = jit::Driver::open(real);
  if (driver)
    for (int i = 0; i < (*driver)->device_count(); ++i)
      found.push_back(to_json((*driver)->device(i), fmt::format("cuda:{}", i)));

  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry :
       std::filesystem::directory_iterator(session.configs_folder() / "devices", ignored))
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    auto description = jit::DeviceDescription::load(file);
    if (!description) return session.report(description.error());
    description->info.virtual_gpu = true;
    found.push_back(to_json(description->info, "virtual:" + file.stem().string()));
  }

  const std::string& asked = session.options.device;
  std::string names;
  nlohmann::json chosen = nlohmann::json::array();
  for (const auto& device : found) {
    const auto name = device["device"].get<std::string>();
    names += (names.empty() ? "" : ", ") + name;
    const bool kind = asked == name.substr(0, name.find(':'));
    if (asked == "auto" || kind || asked == name) chosen.push_back(device);
  }
  if (chosen.empty() && asked != "auto")
    return session.report(
        session.usage({ErrorCode::kNotFound,
                       fmt::format("--device is '{}', expected one of {}", asked, names),
                       {}}));
  found = std::move(chosen);

  if (session.options.json) {
    std::cout << found.dump() << "\n";
    return;
  }
  if (!driver && !asked.starts_with("virtual"))
    std::cout << "no GPU: " << driver.error().message << "\n";
  for (const auto& device : found)
    std::cout << fmt::format("{:<16} {:<34} sm {:<5} {:>4} SMs {:>7.1f} GiB  L2 {:>5.1f} MiB\n",
                             device["device"].get<std::string>(), device["name"].get<std::string>(),
                             device["compute"].get<std::string>(), device["sm_count"].get<int>(),
                             device["memory_bytes"].get<double>() / (1 << 30),
                             device["l2_bytes"].get<double>() / (1 << 20));
}

}  // namespace

void add_devices(CLI::App& app, Session& session) {
  app.add_subcommand("devices", "List the GPUs that are here and those that can be emulated")
      ->callback([&session] { list_devices(session); });
}

}  // namespace tilewright::cli
