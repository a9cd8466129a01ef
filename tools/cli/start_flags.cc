#include "tools/cli/start_flags.h"

namespace miniray::cli {

const std::vector<std::string>& HeadPlaceFlags() {
  static const auto* const flags =
      new std::vector<std::string>{"host", "port", "state_dir"};
  return *flags;
}

const std::vector<std::string>& HeadTuningFlags() {
  static const auto* const flags =
      new std::vector<std::string>{"dashboard_port",      "lease",
                                   "driver_grace",        "infeasible_timeout",
                                   "group_patience",      "group_hold",
                                   "max_restart_delay",   "long_life",
                                   "reconnect_timeout",   "session_life",
                                   "max_reconnect_pause", "max_state_bytes",
                                   "package_limit",       "max_waiting"};
  return *flags;
}

const std::vector<std::string>& DaemonFlags() {
  static const auto* const flags =
      new std::vector<std::string>{"num_cpus",
                                   "num_gpus",
                                   "resources",
                                   "node_ip",
                                   "labels",
                                   "shared_memory_mb",
                                   "object_store_bytes",
                                   "object_spill_dir",
                                   "memory_limit",
                                   "memory_period",
                                   "metrics_port",
                                   "fence_after",
                                   "headless_timeout",
                                   "connect_timeout",
                                   "answer_timeout",
                                   "fetch_timeout",
                                   "inject_faults",
                                   "drain_timeout",
                                   "stop_grace",
                                   "job_stop_grace",
                                   "package_cache_bytes",
                                   "log_max_bytes",
                                   "log_files",
                                   "log_total_bytes"};
  return *flags;
}

const std::vector<std::string>& CommonFlags() {
  static const auto* const flags =
      new std::vector<std::string>{"silence_timeout", "token_file", "tls_dir"};
  return *flags;
}

std::vector<std::string> JoinFlags(
    const std::vector<std::vector<std::string>>& lists) {
  std::vector<std::string> all;
  for (const std::vector<std::string>& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

}  // namespace miniray::cli
