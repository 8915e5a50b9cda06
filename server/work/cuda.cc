#include "server/work/cuda.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace plumbline {

using absl::StrCat;

namespace {

constexpr int kMajorMin = 8;  // Of the kernels: Ampere.
constexpr char kLibrary[] = "libplumbline_cuda.so";

struct Module {
  decltype(&plumbline_cuda_facts) facts = nullptr;
  decltype(&plumbline_cuda_open) open = nullptr;
  std::string missing;  // Why it is not there.
};

const Module& module() {
  static const Module loaded = [] {
    Module made;
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // Never closed: its devices live on.
    if (library != nullptr) {
      made.facts = reinterpret_cast<decltype(made.facts)>(dlsym(library, "plumbline_cuda_facts"));
      made.open = reinterpret_cast<decltype(made.open)>(dlsym(library, "plumbline_cuda_open"));
    }
    if (made.facts == nullptr || made.open == nullptr) {
      const char* const why = dlerror();
      made.missing = why == nullptr ? "unknown error" : why;
    }
    return made;
  }();
  return loaded;
}

std::string version(int number) { return StrCat(number / 1000, ".", number % 1000 / 10); }

}  // namespace

absl::Status check_cuda(int index, const cuda::Facts& facts) {
  const std::string name = StrCat("cuda:", index);
  if (facts.driver == 0) {
    return absl::FailedPreconditionError(
        StrCat(name, ": expected a driver for CUDA ", version(facts.toolkit), " or newer, found none"));
  }
  // Within a major version, older drivers run newer toolkits (CUDA's minor version compatibility).
  if (facts.driver / 1000 < facts.toolkit / 1000) {
    return absl::FailedPreconditionError(StrCat(name, ": expected a driver for CUDA ", facts.toolkit / 1000,
                                                ".0 or newer, found one for ", version(facts.driver)));
  }
  if (facts.devices == 0) return absl::NotFoundError(StrCat(name, ": expected a device, found none"));
  if (index >= facts.devices) {
    return absl::NotFoundError(StrCat(name, ": expected one of the ", facts.devices, " devices, cuda:0",
                                      facts.devices > 1 ? StrCat(" to cuda:", facts.devices - 1) : "",
                                      ", found no such device"));
  }
  if (facts.major < kMajorMin) {
    return absl::FailedPreconditionError(StrCat(name, ": expected compute capability ", kMajorMin,
                                                ".0 or newer, found ", facts.major, ".", facts.minor, " (",
                                                facts.product, ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> open_cuda(int index) {
  const Module& loaded = module();
  if (!loaded.missing.empty()) {
    return absl::FailedPreconditionError(
        StrCat("cuda:", index, ": expected ", kLibrary, " beside this program, found none: ", loaded.missing));
  }
  cuda::Facts facts;
  loaded.facts(index, &facts);
  if (auto wrong = check_cuda(index, facts); !wrong.ok()) return wrong;
  std::string error;
  std::unique_ptr<Device> device(loaded.open(index, &error));
  if (device == nullptr) return absl::UnavailableError(StrCat("cuda:", index, ": ", error));
  return device;
}

}  // namespace plumbline
