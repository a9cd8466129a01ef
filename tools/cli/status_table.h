// The cluster's tables as text for people.

#ifndef MINIRAY_TOOLS_CLI_STATUS_TABLE_H_
#define MINIRAY_TOOLS_CLI_STATUS_TABLE_H_

#include <string>

#include "proto/head.pb.h"

namespace miniray::cli {

// Returns the tables of nodes, actors, jobs and placement groups, each with a
// heading that counts them. Dead actors and removed groups only with `all`.
std::string FormatClusterState(const v1::GetClusterStateResponse& state,
                               const std::string& address, bool all);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_STATUS_TABLE_H_
