// What libplumbline_cuda.so offers to a program that loads it at run time, so that one program serves nodes with and
// without devices. The program exports its own symbols; the library brings no copy of the host's code.
#pragma once

#include <string>

#include "kernels/device.h"

namespace plumbline::cuda {

// Versions as CUDA counts them: 13000 is 13.0; 0: there is none.
struct Facts {
  int devices = 0;
  int driver = 0;
  int toolkit = 0;
  std::string product;       // Of the device that was asked for, as the rest.
  int major = 0, minor = 0;  // Compute capability.
};

}  // namespace plumbline::cuda

extern "C" {
// Facts that need no context on the device. The product is empty where there is no such device.
void plumbline_cuda_facts(int device, plumbline::cuda::Facts* facts);
// A device of the caller's own, its context made anew after an error; null, and why, where there can be none.
plumbline::Device* plumbline_cuda_open(int device, std::string* error);
}
