#include "server/work/cuda.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"

namespace plumbline {

using absl::StrCat;

namespace {

// Elements that a processor passes through in the time of a launch and half a wait, some 10 microseconds.
constexpr std::int64_t kHostWork = 4096;

constexpr char kLibrary[] = "libplumbline_cuda.so";

struct Module {
  decltype(&plumbline_cuda_open) open = nullptr;
  decltype(&plumbline_cuda_uuid) uuid = nullptr;
  decltype(&plumbline_cuda_import) import = nullptr;
  decltype(&plumbline_cuda_copy) copy = nullptr;
  decltype(&plumbline_cuda_close) close = nullptr;
  std::string missing;  // Why it is not there.
};

const Module& module() {
  static const Module loaded = [] {
    Module made;
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // Never closed: its devices live on.
    const auto find = [&](auto* function, const char* name) {
      if (library != nullptr)
        *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
      if (*function != nullptr || !made.missing.empty()) return;
      const char* const why = dlerror();
      made.missing = why == nullptr ? name : why;
    };
    find(&made.open, "plumbline_cuda_open");
    find(&made.uuid, "plumbline_cuda_uuid");
    find(&made.import, "plumbline_cuda_import");
    find(&made.copy, "plumbline_cuda_copy");
    find(&made.close, "plumbline_cuda_close");
    return made;
  }();
  return loaded;
}

class ImportedMemory final : public SharedDeviceMemory {
 public:
  ImportedMemory(plumbline_cuda_shared* memory, std::uint64_t size) : memory_(memory), size_(size) {}
  ~ImportedMemory() override { module().close(memory_); }

  std::uint64_t size() const override { return size_; }
  absl::Status copy(std::uint64_t offset, std::uint64_t bytes, void* to) override {
    std::string error;
    if (module().copy(memory_, offset, bytes, to, &error)) return absl::OkStatus();
    return absl::InternalError(error);
  }

 private:
  plumbline_cuda_shared* const memory_;
  const std::uint64_t size_;
};

}  // namespace

OpenDeviceMemory cuda_memory_opener() {
  if (!module().missing.empty()) return nullptr;
  return
      [](const std::string& device, const std::string& handle) -> absl::StatusOr<std::unique_ptr<SharedDeviceMemory>> {
        unsigned long long bytes = 0;
        std::string error;
        plumbline_cuda_shared* const memory = module().import(device, handle, &bytes, &error);
        if (memory == nullptr) return absl::FailedPreconditionError(error);
        return std::make_unique<ImportedMemory>(memory, bytes);
      };
}

std::string cuda_uuid(int index) {
  std::string bytes;
  if (!module().missing.empty() || !module().uuid(index, &bytes)) return {};
  return bytes;
}

absl::StatusOr<std::unique_ptr<Device>> open_cuda(int index, std::int64_t sliced_work) {
  const Module& loaded = module();
  if (!loaded.missing.empty()) {
    return absl::FailedPreconditionError(
        StrCat("cuda:", index, ": expected a backend in ", kLibrary, ", found none: ", loaded.missing));
  }
  std::string error;
  std::unique_ptr<Device> device(loaded.open(index, sliced_work, &error));
  if (device == nullptr) return absl::UnavailableError(StrCat("cuda:", index, ": ", error));
  device->set_host_work(kHostWork);
  return device;
}

}  // namespace plumbline
