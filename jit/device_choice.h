/// A device as people name it: in flags, in the C interface, in settings.
#pragma once

#include <string>

#include "jit/driver.h"

namespace tilewright::jit {

struct DeviceChoice {
  DriverOptions driver;
  int ordinal = 0;
};

/// auto (a GPU if there is one, else the virtual one), cuda, cuda:N, virtual, virtual:ID (a file of
/// configs/devices, or its path). `name`: of the flag or field, for the message.
Result<DeviceChoice> parse_device_choice(const std::string& text, const std::string& name);

}  // namespace tilewright::jit
