// What the library exports: the functions of the driver's list, our own, and nothing else.
#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "jit/driver_api.h"
#include "jit/virtual_gpu/driver/export_list.h"

namespace tilewright::vgpu {
namespace {

const char* const kLibrary = TILEWRIGHT_BINARY_DIR "/bin/libtilewright_vgpu.so";

#define TILEWRIGHT_NAME_OF_(name) #name
#define TILEWRIGHT_NAME_OF(name) TILEWRIGHT_NAME_OF_(name)
#define TILEWRIGHT_INSERT(name) names.insert(TILEWRIGHT_NAME_OF(name));

std::set<std::string> wanted_names() {
  std::set<std::string> names;
  TILEWRIGHT_DRIVER_FUNCTIONS(TILEWRIGHT_INSERT)
  TILEWRIGHT_VIRTUAL_FUNCTIONS(TILEWRIGHT_INSERT)
  TILEWRIGHT_VGPU_MORE_FUNCTIONS(TILEWRIGHT_INSERT)
  TILEWRIGHT_VGPU_OLD_FUNCTIONS(TILEWRIGHT_INSERT)
#define TILEWRIGHT_INSERT_DS(name) names.insert(TILEWRIGHT_NAME_OF(name) "_ptds");
#define TILEWRIGHT_INSERT_SZ(name) names.insert(TILEWRIGHT_NAME_OF(name) "_ptsz");
  TILEWRIGHT_VGPU_PTDS_FUNCTIONS(TILEWRIGHT_INSERT_DS)
  TILEWRIGHT_VGPU_PTSZ_FUNCTIONS(TILEWRIGHT_INSERT_SZ)
  names.insert("cuGetProcAddress_v2_ptsz");
  // Of older CUDA, beside the newer ones.
  names.insert({"cuGetProcAddress", "cuMemAdvise", "cuMemPrefetchAsync"});
  names.insert(
      {"tilewrightVgpuSetTelemetry", "tilewrightVgpuGetTelemetry", "tilewrightVgpuSetStreams"});
  return names;
}

/// Names that the dynamic symbol table defines.
std::set<std::string> exported_names() {
  std::ifstream stream(kLibrary, std::ios::binary);
  std::stringstream content;
  content << stream.rdbuf();
  const std::string file = content.str();
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  auto section = [&](std::size_t index) {
    Elf64_Shdr out;
    std::memcpy(&out, file.data() + header.e_shoff + index * sizeof out, sizeof out);
    return out;
  };
  std::set<std::string> names;
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr symbols = section(i);
    if (symbols.sh_type != SHT_DYNSYM) continue;
    const Elf64_Shdr strings = section(symbols.sh_link);
    for (std::size_t at = 0; at < symbols.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, file.data() + symbols.sh_offset + at, sizeof symbol);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS) continue;
      const std::string name = file.data() + strings.sh_offset + symbol.st_name;
      if (!name.starts_with("nvml")) names.insert(name);  // the list of those is NVML's
    }
  }
  return names;
}

TEST(VirtualDriver, ExportsTheListAndNothingElse) { EXPECT_EQ(exported_names(), wanted_names()); }

TEST(VirtualDriver, FindsEveryFunctionByItsPlainName) {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  auto find = reinterpret_cast<decltype(&::cuGetProcAddress)>(
      dlsym(library, TILEWRIGHT_NAME_OF(cuGetProcAddress)));
  ASSERT_TRUE(find);
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
#define TILEWRIGHT_FIND(name)                                                                \
  EXPECT_EQ(find(#name, &found, 13000, CU_GET_PROC_ADDRESS_DEFAULT, &status), CUDA_SUCCESS); \
  EXPECT_EQ(found, dlsym(library, TILEWRIGHT_NAME_OF(name))) << #name;                       \
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  TILEWRIGHT_DRIVER_FUNCTIONS(TILEWRIGHT_FIND)
  TILEWRIGHT_VGPU_MORE_FUNCTIONS(TILEWRIGHT_FIND)
  const struct {
    const char* name;
    int version;
    const char* expected;  // null: a miss
  } older[] = {
      {"cuCtxCreate", 12040, "cuCtxCreate_v3"}, {"cuCtxCreate", 11030, "cuCtxCreate_v2"},
      {"cuCtxCreate", 12050, "cuCtxCreate_v4"}, {"cuGraphGetEdges", 12020, nullptr},
      {"cuGraphExecUpdate", 11080, nullptr},
  };
  for (const auto& c : older) {
    EXPECT_EQ(find(c.name, &found, c.version, 0, &status), CUDA_SUCCESS);
    EXPECT_EQ(found, c.expected ? dlsym(library, c.expected) : nullptr) << c.name << c.version;
  }
  EXPECT_EQ(find("cuGetProcAddress", &found, 11080, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(found, dlsym(library, "cuGetProcAddress"));
  EXPECT_EQ(find("cuNoSuchFunction", &found, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(find("cuNoSuchFunction", &found, 13000, 0, nullptr), CUDA_ERROR_NOT_FOUND);
  dlclose(library);
}

TEST(VirtualDriver, NeedsGlibcOnly) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitized build needs its runtime";
#endif
  std::ifstream stream(kLibrary, std::ios::binary);
  std::stringstream content;
  content << stream.rdbuf();
  for (const char* library : {"libstdc++.so", "libgcc_s.so", "libyaml", "libfmt", "libxxhash"})
    EXPECT_EQ(content.str().find(library), std::string::npos) << library;
}

}  // namespace
}  // namespace tilewright::vgpu
