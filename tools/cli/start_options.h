// What `miniray start` was asked for, checked.

#ifndef MINIRAY_TOOLS_CLI_START_OPTIONS_H_
#define MINIRAY_TOOLS_CLI_START_OPTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/cluster.pb.h"
#include "tools/cli/command_line.h"

namespace miniray::cli {

struct StartOptions {
  // One of the two.
  bool head = false;
  std::string address;

  // Head.
  std::string host;
  bool host_given = false;  // By the user: it is not the default.
  int port = 0;
  bool port_given = false;
  int dashboard_port = -1;
  std::string state_dir;  // Absolute; empty: the default.
  absl::Duration lease;
  absl::Duration driver_grace;
  absl::Duration infeasible_timeout;
  absl::Duration group_patience;
  absl::Duration group_hold;
  absl::Duration max_restart_delay;
  absl::Duration long_life;
  absl::Duration reconnect_timeout;
  absl::Duration session_life;
  absl::Duration max_reconnect_pause;
  int64_t max_state_bytes = 0;
  int64_t package_limit = 0;
  int64_t max_waiting = 0;
  bool with_daemon = false;

  // Worker daemon.
  v1::Resources resources;
  std::string node_ip;
  absl::Duration fence_after;  // Zero: three leases.
  absl::Duration headless_timeout;
  absl::Duration connect_timeout;
  absl::Duration stop_grace;
  absl::Duration job_stop_grace;
  absl::Duration answer_timeout;
  absl::Duration fetch_timeout;
  absl::Duration drain_timeout;
  absl::Duration memory_period;
  double memory_limit = 0;
  int metrics_port = -1;
  int64_t package_cache_bytes = 0;
  int64_t log_max_bytes = 0;
  int log_files = 0;
  int64_t log_total_bytes = 0;
  std::map<std::string, std::string> labels;
  int64_t shared_memory_mb = -1;
  int64_t object_store_bytes = 0;
  std::string object_spill_dir;  // Absolute; empty: the default.

  std::optional<absl::Duration> silence_timeout;  // None: not asked for.
  absl::Duration timeout;  // Of the start, in the background.
  bool block = false;
  int ready_fd = -1;
  int lifeline_fd = -1;
  bool detached = false;
};

// Errors: INVALID_ARGUMENT, a message for the user.
absl::StatusOr<StartOptions> ReadStartOptions(const CommandLine& line);

// True for an IP address of this machine that others can call: not 0.0.0.0,
// which means all.
bool IsOwnAddress(const std::string& ip);

// Returns the resources in "name=quantity,...". Errors: INVALID_ARGUMENT.
absl::StatusOr<v1::Resources> ParseResources(absl::string_view list);

// Returns the labels in "name=value,...". Errors: INVALID_ARGUMENT.
absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    absl::string_view list);

// CPUs that this process may run on.
int UsableCpus();

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_START_OPTIONS_H_
