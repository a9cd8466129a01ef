// Worker daemons of one cluster beside each other on one machine.

#ifndef MINIRAY_TOOLS_CLI_OTHER_DAEMONS_H_
#define MINIRAY_TOOLS_CLI_OTHER_DAEMONS_H_

#include <string>

namespace miniray::cli {

// Says, for the daemon of `node_id` that has joined the head at `address`, if
// this machine's daemons offer more CPUs to that cluster than there are; else,
// and where the head does not tell, it is empty. Blocks for 2 s at most.
std::string WarnOfOtherDaemons(const std::string& address,
                               const std::string& token,
                               const std::string& node_id);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_OTHER_DAEMONS_H_
