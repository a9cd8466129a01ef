// The cluster's tables as text for people.

#ifndef MINIRAY_TOOLS_CLI_STATUS_TABLE_H_
#define MINIRAY_TOOLS_CLI_STATUS_TABLE_H_

#include <string>

#include "proto/head.pb.h"

namespace miniray::cli {

// Returns the tables of nodes, actors and jobs, each with a heading that counts
// them. What users chose (names, causes) is kept to one line, without control
// characters.
std::string FormatClusterState(const v1::GetClusterStateResponse& state,
                               const std::string& address);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_STATUS_TABLE_H_
