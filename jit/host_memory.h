/// How much memory the host still has for us: what we ask before taking much of it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>

namespace tilewright::jit {

/// Bytes that can be had without swapping: the kernel's MemAvailable, or less where a control group
/// of this process (version 1 or 2) limits it. nullopt: the host does not say.
/// `root`: what /proc and /sys are looked for in.
std::optional<std::size_t> available_host_memory(const std::filesystem::path& root = "/");

/// What a process holds of its own: resident and not shared. 0 where there is no such process.
std::size_t private_bytes(pid_t pid);

}  // namespace tilewright::jit
