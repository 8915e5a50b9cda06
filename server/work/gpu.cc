#include "server/work/gpu.h"

#include <dlfcn.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace plumbline {
namespace {

// NVML as its header declares it: every function returns 0 where it succeeded.
struct NvmlDevice;
using Init = int (*)();
using Find = int (*)(const char* uuid, NvmlDevice** device);
using Index = int (*)(NvmlDevice* device, unsigned* index);

struct Close {
  void operator()(void* library) const { dlclose(library); }
};

}  // namespace

std::string gpu_uuid(const std::string& bytes) {
  if (bytes.size() != 16) return {};
  const std::string hex = absl::BytesToHexString(bytes);
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-", hex.substr(16, 4),
                      "-", hex.substr(20));
}

std::optional<unsigned> gpu_number(const std::string& uuid, const std::string& library) {
  const std::unique_ptr<void, Close> loaded(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (loaded == nullptr) return std::nullopt;
  const auto init = reinterpret_cast<Init>(dlsym(loaded.get(), "nvmlInit_v2"));
  const auto shut = reinterpret_cast<Init>(dlsym(loaded.get(), "nvmlShutdown"));
  const auto find = reinterpret_cast<Find>(dlsym(loaded.get(), "nvmlDeviceGetHandleByUUID"));
  const auto index = reinterpret_cast<Index>(dlsym(loaded.get(), "nvmlDeviceGetIndex"));
  if (init == nullptr || shut == nullptr || find == nullptr || index == nullptr || init() != 0) return std::nullopt;
  NvmlDevice* device = nullptr;
  unsigned number = 0;
  const bool found = find(uuid.c_str(), &device) == 0 && index(device, &number) == 0;
  shut();
  return found ? std::make_optional(number) : std::nullopt;
}

}  // namespace plumbline
