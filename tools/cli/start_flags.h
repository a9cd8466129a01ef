// The flags of `miniray start`, by what they are for: who starts a head, a
// worker daemon or both, passes them on, remembers or refuses them by these
// lists.

#ifndef MINIRAY_TOOLS_CLI_START_FLAGS_H_
#define MINIRAY_TOOLS_CLI_START_FLAGS_H_

#include <string>
#include <vector>

namespace miniray::cli {

// Of a head alone: by which it is looked for again after it was killed, ...
const std::vector<std::string>& HeadPlaceFlags();
// ... and how it is tuned.
const std::vector<std::string>& HeadTuningFlags();

// Of a worker daemon alone, without the head's address.
const std::vector<std::string>& DaemonFlags();

// Of both.
const std::vector<std::string>& CommonFlags();

// The lists behind each other.
std::vector<std::string> JoinFlags(
    const std::vector<std::vector<std::string>>& lists);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_START_FLAGS_H_
