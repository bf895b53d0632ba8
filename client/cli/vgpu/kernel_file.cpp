#include "client/cli/vgpu/kernel_file.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "jit/compile_log.h"
#include "jit/nvrtc.h"

namespace tilewright::cli {
namespace {

template <typename Size, typename Get>
std::string text_of(nvrtcProgram program, Size size_of, Get get) {
  std::size_t size = 0;
  if (size_of(program, &size) != NVRTC_SUCCESS) return {};
  std::string text(size, '\0');
  if (size > 0 && get(program, text.data()) != NVRTC_SUCCESS) return {};
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

}  // namespace

Result<KernelFile> load_kernel_file(const std::filesystem::path& file) {
  KernelFile kernel;
  std::error_code ignored;
  kernel.name = std::filesystem::absolute(file, ignored).lexically_normal().string();
  kernel.folder = file.parent_path().empty() ? "." : file.parent_path();
  const std::string extension = file.extension().string();
  if (extension != ".cu" && extension != ".ptx")
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("kernel file is '{}', expected one that ends in .cu or .ptx", file.string()));
  kernel.ptx = extension == ".ptx";
  std::ifstream stream(file, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  if (!stream.good())
    return fail(ErrorCode::kNotFound,
                fmt::format("kernel file {} cannot be read, expected CUDA or PTX", file.string()));
  kernel.text = text.str();
  return kernel;
}

Result<std::string> compile_kernel(const KernelFile& file, const jit::Architecture& architecture,
                                   const std::vector<std::string>& flags, bool resources) {
  if (file.ptx) return file.text;
  TILEWRIGHT_ASSIGN_OR_RETURN(jit::Nvrtc nvrtc, jit::open_nvrtc({}));
  std::string target = architecture.name();
  if (!resources) target.replace(0, 2, "compute");  // a virtual target gives PTX alone
  std::vector<std::string> all = {"-arch=" + target, "--std=c++20", "-lineinfo",
                                  "-I" + file.folder.string()};
  // Headers of the toolkit that NVRTC is part of: cuda_fp16.h and its like.
  const std::filesystem::path library = nvrtc.path;  // a bare name where the loader found it
  const auto toolkit = library.has_parent_path() ? library.parent_path().parent_path() / "include"
                                                 : std::filesystem::path();
  std::error_code ignored;
  for (const std::filesystem::path& folder :
       {toolkit, std::filesystem::path(TILEWRIGHT_CUDA_HEADERS)})
    if (!folder.empty() && std::filesystem::is_directory(folder, ignored))
      all.push_back("-I" + folder.string());
  if (resources) all.push_back("--ptxas-options=-v");
  all.insert(all.end(), flags.begin(), flags.end());
  std::vector<const char*> pointers;
  for (const std::string& flag : all) pointers.push_back(flag.c_str());

  nvrtcProgram program = nullptr;
  nvrtcResult status =
      nvrtc.nvrtcCreateProgram(&program, file.text.c_str(), file.name.c_str(), 0, nullptr, nullptr);
  if (status == NVRTC_SUCCESS)
    status = nvrtc.nvrtcCompileProgram(program, int(pointers.size()), pointers.data());
  const std::string log =
      jit::stable_log(text_of(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog));
  std::string ptx = text_of(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX);
  if (program) nvrtc.nvrtcDestroyProgram(&program);
  if (status != NVRTC_SUCCESS)
    return fail(ErrorCode::kCompile, jit::first_error(log, ptx),
                fmt::format("{}: {}\n{}", file.name, nvrtc.nvrtcGetErrorString(status), log));
  std::string comments;
  if (resources)
    for (const jit::KernelResources& kernel : jit::parse_resources(log, ptx))
      comments += jit::resources_comment(kernel) + "\n";
  return comments + ptx;
}

}  // namespace tilewright::cli
