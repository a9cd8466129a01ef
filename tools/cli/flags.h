// All flags of `miniray`; which verb takes which: verbs.cc.

#ifndef MINIRAY_TOOLS_CLI_FLAGS_H_
#define MINIRAY_TOOLS_CLI_FLAGS_H_

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "absl/time/time.h"

ABSL_DECLARE_FLAG(bool, head);
ABSL_DECLARE_FLAG(std::string, host);
ABSL_DECLARE_FLAG(int, port);
ABSL_DECLARE_FLAG(int, dashboard_port);
ABSL_DECLARE_FLAG(std::string, state_dir);
ABSL_DECLARE_FLAG(absl::Duration, lease);
ABSL_DECLARE_FLAG(absl::Duration, driver_grace);
ABSL_DECLARE_FLAG(absl::Duration, infeasible_timeout);
ABSL_DECLARE_FLAG(absl::Duration, group_patience);
ABSL_DECLARE_FLAG(absl::Duration, group_hold);
ABSL_DECLARE_FLAG(absl::Duration, silence_timeout);
ABSL_DECLARE_FLAG(absl::Duration, max_restart_delay);
ABSL_DECLARE_FLAG(absl::Duration, long_life);
ABSL_DECLARE_FLAG(absl::Duration, reconnect_timeout);
ABSL_DECLARE_FLAG(absl::Duration, session_life);
ABSL_DECLARE_FLAG(absl::Duration, max_reconnect_pause);
ABSL_DECLARE_FLAG(int64_t, max_state_bytes);
ABSL_DECLARE_FLAG(int64_t, max_waiting);
ABSL_DECLARE_FLAG(std::string, address);
ABSL_DECLARE_FLAG(double, num_cpus);
ABSL_DECLARE_FLAG(double, num_gpus);
ABSL_DECLARE_FLAG(std::string, resources);
ABSL_DECLARE_FLAG(std::string, node_ip);
ABSL_DECLARE_FLAG(absl::Duration, fence_after);
ABSL_DECLARE_FLAG(absl::Duration, headless_timeout);
ABSL_DECLARE_FLAG(absl::Duration, connect_timeout);
ABSL_DECLARE_FLAG(absl::Duration, stop_grace);
ABSL_DECLARE_FLAG(absl::Duration, job_stop_grace);
ABSL_DECLARE_FLAG(absl::Duration, answer_timeout);
ABSL_DECLARE_FLAG(absl::Duration, fetch_timeout);
ABSL_DECLARE_FLAG(absl::Duration, drain_timeout);
ABSL_DECLARE_FLAG(absl::Duration, memory_period);
ABSL_DECLARE_FLAG(double, memory_limit);
ABSL_DECLARE_FLAG(int, metrics_port);
ABSL_DECLARE_FLAG(int64_t, package_cache_bytes);
ABSL_DECLARE_FLAG(int64_t, log_max_bytes);
ABSL_DECLARE_FLAG(int, log_files);
ABSL_DECLARE_FLAG(int64_t, log_total_bytes);
ABSL_DECLARE_FLAG(std::string, labels);
ABSL_DECLARE_FLAG(int64_t, package_limit);
ABSL_DECLARE_FLAG(int64_t, shared_memory_mb);
ABSL_DECLARE_FLAG(int64_t, object_store_bytes);
ABSL_DECLARE_FLAG(std::string, object_spill_dir);
ABSL_DECLARE_FLAG(std::string, token_file);
ABSL_DECLARE_FLAG(std::string, tls_dir);
ABSL_DECLARE_FLAG(std::string, ca_dir);
ABSL_DECLARE_FLAG(int, days);
ABSL_DECLARE_FLAG(std::string, inject_faults);
ABSL_DECLARE_FLAG(bool, block);
ABSL_DECLARE_FLAG(std::string, format);
ABSL_DECLARE_FLAG(bool, force);
ABSL_DECLARE_FLAG(absl::Duration, grace);
ABSL_DECLARE_FLAG(double, timeout);
ABSL_DECLARE_FLAG(double, head_patience);
ABSL_DECLARE_FLAG(bool, all);
ABSL_DECLARE_FLAG(bool, wait);
ABSL_DECLARE_FLAG(std::string, working_dir);
ABSL_DECLARE_FLAG(int64_t, max_folder_bytes);
ABSL_DECLARE_FLAG(std::string, job_id);
ABSL_DECLARE_FLAG(std::string, job);
ABSL_DECLARE_FLAG(std::string, run);
ABSL_DECLARE_FLAG(std::string, output);
ABSL_DECLARE_FLAG(bool, watch);
ABSL_DECLARE_FLAG(double, interval);
ABSL_DECLARE_FLAG(std::string, sort);
ABSL_DECLARE_FLAG(bool, follow);
ABSL_DECLARE_FLAG(int64_t, tail);

ABSL_DECLARE_FLAG(int, ready_fd);
ABSL_DECLARE_FLAG(int, lifeline_fd);
ABSL_DECLARE_FLAG(bool, detached);

#endif  // MINIRAY_TOOLS_CLI_FLAGS_H_
