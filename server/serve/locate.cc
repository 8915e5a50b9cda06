#include "server/serve/locate.h"

#include <algorithm>
#include <filesystem>

namespace plumbline {

std::string installed_profiles() {
  std::error_code error;
  const auto binary = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const auto installed = binary.parent_path().parent_path() / "share/plumbline/profiles";
    if (std::filesystem::is_directory(installed, error)) return installed.string();
  }
  return PLUMBLINE_PROFILES_DIR;
}

std::vector<std::string> underscored_flags(int argc, char** argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    std::string& argument = arguments[i];
    if (argument == "--") break;
    if (argument.size() < 3 || argument.compare(0, 2, "--") != 0) continue;
    std::replace(argument.begin() + 2, argument.begin() + std::min(argument.find('='), argument.size()), '-', '_');
  }
  return arguments;
}

}  // namespace plumbline
