/// What a command prints with --json: one document on standard output, nothing else.
#pragma once

#include <iostream>
#include <nlohmann/json.hpp>

namespace tilewright::cli {

/// Names of files may be no UTF-8; what is not is replaced.
inline void print_json(const nlohmann::json& document) {
  std::cout << document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

}  // namespace tilewright::cli
