// A reproducer as a Python script.
#pragma once

#include <string>

#include "server/pipeline/reproduce.h"

namespace plumbline {

struct ReproducerScript {
  std::string script;
  std::string data;  // The content of the file beside it; it is empty where the script holds everything.
};

ReproducerScript write_reproducer(const Reproducer& reproducer, const Verdict& verdict);

}  // namespace plumbline
