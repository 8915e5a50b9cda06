// What the command line and the installation look like from the binary.
#pragma once

#include <string>
#include <vector>

namespace plumbline {

// The directory of device profiles: PREFIX/share/plumbline/profiles when the binary is PREFIX/bin/plumblined and it
// exists, otherwise that of the source tree that the binary was built from.
std::string installed_profiles();

// The arguments as Abseil's flags take them: dashes inside of names as underscores ("--data-dir=X" is "--data_dir=X"),
// and all that is given with --listen in one flag, separated by commas, since the last of several would win.
std::vector<std::string> flags_for_absl(int argc, char** argv);

}  // namespace plumbline
