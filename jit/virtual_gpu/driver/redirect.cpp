// For LD_AUDIT: who opens libcuda or NVML, by whatever path, gets the library that
// $TILEWRIGHT_VGPU_LIBRARY names. An auditor is asked about every search of the loader, those of the
// program's own libraries included, and changes nothing else: dlopen still knows who called it.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#define VGPU_AUDIT extern "C" __attribute__((visibility("default")))

VGPU_AUDIT unsigned la_version(unsigned version) { return version; }

VGPU_AUDIT char* la_objsearch(const char* name, std::uintptr_t*, unsigned) {
  const char* slash = std::strrchr(name, '/');
  const char* file = slash ? slash + 1 : name;
  // libcuda.so.1, and not libcudart.so.13.
  const bool ours =
      std::strncmp(file, "libcuda.so", 10) == 0 || std::strncmp(file, "libnvidia-ml.so", 15) == 0;
  char* library = ours ? std::getenv("TILEWRIGHT_VGPU_LIBRARY") : nullptr;
  return library ? library : const_cast<char*>(name);
}
