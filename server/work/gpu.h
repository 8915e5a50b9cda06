// How NVIDIA's tools name a GPU, so that our series join those of the DCGM exporter. Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace plumbline {

// "GPU-8c8f7b2e-...", as `nvidia-smi -L` prints it, of the 16 bytes that CUDA gives; empty for any other number of
// bytes.
std::string gpu_uuid(const std::string& bytes);

// The number that nvidia-smi and the DCGM exporter give the GPU of this UUID. CUDA counts otherwise: by speed, and the
// visible devices alone. nullopt where the driver's library cannot be loaded or does not know the GPU.
std::optional<unsigned> gpu_number(const std::string& uuid, const std::string& library = "libnvidia-ml.so.1");

}  // namespace plumbline
