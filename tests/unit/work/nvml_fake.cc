// The part of NVML that the daemon calls, on a machine of two GPUs.
#include <cstring>

namespace {
int begun = 0;
}

struct NvmlDevice {
  const char* uuid;
  unsigned index;
};

extern "C" {
int nvmlInit_v2() { return ++begun, 0; }
int nvmlShutdown() { return --begun, 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, NvmlDevice** device) {
  static NvmlDevice devices[] = {{"GPU-00000000-0000-0000-0000-000000000000", 0},
                                 {"GPU-00112233-4455-6677-8899-aabbccddeeff", 1}};
  if (begun == 0) return 1;  // NVML_ERROR_UNINITIALIZED
  for (NvmlDevice& each : devices) {
    if (std::strcmp(each.uuid, uuid) == 0) return *device = &each, 0;
  }
  return 6;  // NVML_ERROR_NOT_FOUND
}

int nvmlDeviceGetIndex(NvmlDevice* device, unsigned* index) { return *index = device->index, 0; }
}
