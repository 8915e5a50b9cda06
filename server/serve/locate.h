// What the command line and the installation look like from the binary.
#pragma once

#include <string>
#include <vector>

namespace plumbline {

// The directory of device profiles: PREFIX/share/plumbline/profiles when the binary is PREFIX/bin/plumblined and it
// exists, otherwise that of the source tree that the binary was built from.
std::string installed_profiles();

// The arguments with the dashes inside of flag names as underscores ("--data-dir=X" is "--data_dir=X").
std::vector<std::string> underscored_flags(int argc, char** argv);

}  // namespace plumbline
