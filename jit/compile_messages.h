/// The frames of compile_worker.fbs as our types. Decoders verify; what they refuse is kCorrupt.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "jit/compiler.h"

namespace tilewright::jit {

struct WorkerSetup {
  HeaderSet headers;
  std::string nvrtc_path;
  std::size_t memory_bytes = 0;
};
std::string encode(const WorkerSetup& setup);
Result<WorkerSetup> decode_setup(std::string_view frame);

/// The worker's first answer: NVRTC's version, or why there is none.
std::string encode_hello(const Result<std::string>& nvrtc_version);
Result<std::string> decode_hello(std::string_view frame);

struct CompileTask {
  Source source;
  CompileOptions options;
  bool check = false;
};
struct DescribeTask {
  std::string header;
};
using WorkerTask = std::variant<CompileTask, DescribeTask>;
std::string encode(const WorkerTask& task);
Result<WorkerTask> decode_task(std::string_view frame);

/// What became of a task: an error, an image, or a description.
std::string encode(const Result<Image>& result);
std::string encode_description(const Result<std::string>& description);
/// The architecture is that of the task: it does not travel back.
Result<Image> decode_image(std::string_view frame);
Result<std::string> decode_description(std::string_view frame);

}  // namespace tilewright::jit
