/// Where Tilewright's own files are: the one place that reads the environment for paths.
#pragma once

#include <filesystem>
#include <string>

namespace tilewright::jit {

/// Folder of the running executable, or of the shared library this code is linked into.
std::filesystem::path own_folder();

/// $TILEWRIGHT_CONFIGS, or configs/ of the installed tree (../share/tilewright/configs from the
/// executable), or of the source tree that this was built from.
std::filesystem::path find_configs();

/// A program or library of ours: next to this executable, else in ../bin, ../lib, ../libexec.
/// Returns the first that exists, else the one next to the executable.
std::filesystem::path find_program(const std::string& name);

/// $TILEWRIGHT_CACHE, $XDG_CACHE_HOME/tilewright, ~/.cache/tilewright, or one by uid under the
/// system's temporary folder.
std::filesystem::path default_cache_folder();

/// Sockets, locks and leases of this user: $TILEWRIGHT_RUNTIME, $XDG_RUNTIME_DIR/tilewright, or
/// tilewright-UID under the system's temporary folder. Not created here.
std::filesystem::path runtime_folder();

}  // namespace tilewright::jit
