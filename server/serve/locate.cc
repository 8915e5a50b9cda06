#include "server/serve/locate.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_join.h"

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

std::vector<std::string> flags_for_absl(int argc, char** argv) {
  constexpr char kListen[] = "--listen";
  std::vector<std::string> arguments, listen;
  for (int i = 0; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "--") {
      arguments.insert(arguments.end(), argv + i, argv + argc);
      break;
    }
    if (i > 0 && argument.compare(0, 2, "--") == 0) {
      const auto name_end = static_cast<std::ptrdiff_t>(std::min(argument.find('='), argument.size()));
      std::replace(argument.begin() + 2, argument.begin() + name_end, '-', '_');
      if (argument == kListen && i + 1 < argc) {
        listen.emplace_back(argv[++i]);
        continue;
      }
      if (argument.compare(0, sizeof kListen, std::string(kListen) + "=") == 0) {
        listen.push_back(argument.substr(sizeof kListen));
        continue;
      }
    }
    arguments.push_back(std::move(argument));
  }
  if (!listen.empty()) arguments.insert(arguments.begin() + 1, std::string(kListen) + "=" + absl::StrJoin(listen, ","));
  return arguments;
}

}  // namespace plumbline
