#include "jit/compile_messages.h"

#include <memory>

#include "jit/compile_worker_generated.h"

namespace tilewright::jit {
namespace {

template <typename Table, typename Packed>
std::string finish(const Packed& packed) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(Table::Pack(builder, &packed));
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

template <typename Table, typename Packed = typename Table::NativeTableType>
Result<std::unique_ptr<Packed>> open(std::string_view frame) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(frame.data());
  flatbuffers::Verifier verifier(data, frame.size());
  if (!verifier.VerifyBuffer<Table>(nullptr))
    return fail(ErrorCode::kCorrupt, "a compile worker's frame is malformed");
  return std::unique_ptr<Packed>(flatbuffers::GetRoot<Table>(data)->UnPack());
}

std::unique_ptr<wire::FailureT> pack(const Error& error) {
  auto packed = std::make_unique<wire::FailureT>();
  packed->code = static_cast<std::uint16_t>(error.code);
  packed->message = error.message;
  packed->detail = error.detail;
  return packed;
}

Error unpack(wire::FailureT& packed) {
  return {error_code_of(packed.code).value_or(ErrorCode::kInternal), std::move(packed.message),
          std::move(packed.detail)};
}

}  // namespace

std::string encode(const WorkerSetup& setup) {
  wire::SetupT packed;
  packed.nvrtc_path = setup.nvrtc_path;
  packed.memory_bytes = setup.memory_bytes;
  for (const auto& [name, text] : setup.headers) {
    auto& header = packed.headers.emplace_back(std::make_unique<wire::HeaderT>());
    header->name = name;
    header->text = text;
  }
  return finish<wire::Setup>(packed);
}

Result<WorkerSetup> decode_setup(std::string_view frame) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto packed, open<wire::Setup>(frame));
  WorkerSetup setup{{}, std::move(packed->nvrtc_path), packed->memory_bytes};
  for (auto& header : packed->headers) setup.headers[header->name] = std::move(header->text);
  return setup;
}

std::string encode_hello(const Result<std::string>& nvrtc_version) {
  wire::HelloT packed;
  if (nvrtc_version)
    packed.nvrtc_version = *nvrtc_version;
  else
    packed.error = pack(nvrtc_version.error());
  return finish<wire::Hello>(packed);
}

Result<std::string> decode_hello(std::string_view frame) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto packed, open<wire::Hello>(frame));
  if (packed->error) return fail(unpack(*packed->error));
  return std::move(packed->nvrtc_version);
}

std::string encode(const WorkerTask& task) {
  wire::RequestT request;
  if (const auto* describe = std::get_if<DescribeTask>(&task)) {
    wire::DescribeT packed;
    packed.header = describe->header;
    request.task.Set(std::move(packed));
  } else {
    const auto& compile = std::get<CompileTask>(task);
    wire::CompileT packed;
    packed.name = compile.source.name;
    packed.text = compile.source.text;
    packed.major = compile.options.architecture.major;
    packed.minor = compile.options.architecture.minor;
    packed.specific = compile.options.architecture.specific;
    packed.flags = compile.options.flags;
    packed.cubin = compile.options.cubin;
    packed.check = compile.check;
    request.task.Set(std::move(packed));
  }
  return finish<wire::Request>(request);
}

Result<WorkerTask> decode_task(std::string_view frame) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto request, open<wire::Request>(frame));
  if (auto* describe = request->task.AsDescribe()) return DescribeTask{std::move(describe->header)};
  auto* packed = request->task.AsCompile();
  if (!packed) return fail(ErrorCode::kCorrupt, "a compile worker's frame has no task");
  CompileTask task;
  task.source = {std::move(packed->name), std::move(packed->text)};
  task.options.architecture = {packed->major, packed->minor, packed->specific};
  task.options.flags = std::move(packed->flags);
  task.options.cubin = packed->cubin;
  task.check = packed->check;
  return task;
}

std::string encode(const Result<Image>& result) {
  wire::ResponseT response;
  if (!result) {
    response.error = pack(result.error());
    return finish<wire::Response>(response);
  }
  response.image = std::make_unique<wire::CompiledT>();
  wire::CompiledT& packed = *response.image;
  packed.high = result->digest.high;
  packed.low = result->digest.low;
  packed.ptx = result->ptx;
  packed.cubin.assign(result->cubin.begin(), result->cubin.end());
  packed.log = result->log;
  packed.compile_ms = result->compile_ms;
  for (const KernelResources& kernel : result->kernels) {
    auto& resources = packed.kernels.emplace_back(std::make_unique<wire::ResourcesT>());
    resources->kernel = kernel.kernel;
    resources->registers = kernel.registers;
    resources->static_shared_bytes = kernel.static_shared_bytes;
    resources->spill_store_bytes = kernel.spill_store_bytes;
    resources->spill_load_bytes = kernel.spill_load_bytes;
    resources->stack_bytes = kernel.stack_bytes;
    resources->max_threads = kernel.max_threads;
  }
  return finish<wire::Response>(response);
}

std::string encode_description(const Result<std::string>& description) {
  wire::ResponseT response;
  if (description)
    response.description = *description;
  else
    response.error = pack(description.error());
  return finish<wire::Response>(response);
}

Result<Image> decode_image(std::string_view frame) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto response, open<wire::Response>(frame));
  if (response->error) return fail(unpack(*response->error));
  if (!response->image) return fail(ErrorCode::kCorrupt, "a compile worker sent no image");
  wire::CompiledT& packed = *response->image;
  Image image;
  image.digest = {packed.high, packed.low};
  image.ptx = std::move(packed.ptx);
  image.cubin.assign(packed.cubin.begin(), packed.cubin.end());
  image.log = std::move(packed.log);
  image.compile_ms = packed.compile_ms;
  for (auto& kernel : packed.kernels)
    image.kernels.push_back({std::move(kernel->kernel), kernel->registers,
                             kernel->static_shared_bytes, kernel->spill_store_bytes,
                             kernel->spill_load_bytes, kernel->stack_bytes, kernel->max_threads});
  return image;
}

Result<std::string> decode_description(std::string_view frame) {
  TILEWRIGHT_ASSIGN_OR_RETURN(auto response, open<wire::Response>(frame));
  if (response->error) return fail(unpack(*response->error));
  return std::move(response->description);
}

}  // namespace tilewright::jit
