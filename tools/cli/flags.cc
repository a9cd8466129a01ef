#include "tools/cli/flags.h"

#include "absl/flags/flag.h"
#include "absl/time/time.h"
#include "runtime/base/silence.h"

ABSL_FLAG(bool, head, false, "Start a head.");
ABSL_FLAG(std::string, host, "127.0.0.1", "IP address the head listens on.");
ABSL_FLAG(int, port, 6380, "Port of the head; 0: any that is free.");
ABSL_FLAG(int, dashboard_port, 8266,
          "Port of the dashboard; 0: any that is free, -1: no dashboard.");
ABSL_FLAG(std::string, state_dir, "", "Folder of the head's state.");
ABSL_FLAG(absl::Duration, lease, absl::Seconds(10),
          "A node that is silent for so long is lost.");
ABSL_FLAG(absl::Duration, driver_grace, absl::Seconds(2),
          "What a driver whose connection broke has to come back.");
ABSL_FLAG(absl::Duration, max_restart_delay, absl::Seconds(30),
          "Longest pause before an actor that ends again and again restarts.");
ABSL_FLAG(absl::Duration, long_life, absl::Minutes(1),
          "An actor's process that lived so long may restart at once.");
ABSL_FLAG(absl::Duration, reconnect_timeout, absl::Seconds(60),
          "How long calls wait for what cannot be reached.");
ABSL_FLAG(absl::Duration, session_life, absl::Minutes(5),
          "How long an actor remembers a caller whose connection broke.");
ABSL_FLAG(absl::Duration, max_reconnect_pause, absl::Seconds(1),
          "Longest pause between two tries to reach the head.");
ABSL_FLAG(absl::Duration, infeasible_timeout, absl::Seconds(30),
          "After it, what no node could ever hold fails.");
ABSL_FLAG(absl::Duration, group_patience, absl::Seconds(10),
          "What a placement group waits before nodes are held for it.");
ABSL_FLAG(absl::Duration, group_hold, absl::Seconds(30),
          "How long the same nodes are held for a placement group.");
ABSL_FLAG(absl::Duration, silence_timeout, miniray::kDefaultSilenceTimeout,
          "A connection whose other end is silent for so long is made anew.");
ABSL_FLAG(int64_t, max_state_bytes, int64_t{64} << 20,
          "Of the state that one actor saves.");
ABSL_FLAG(int64_t, max_waiting, 100000,
          "Actors, placement groups, submitted jobs that may wait, each.");
ABSL_FLAG(std::string, address, "", "HOST:PORT of the head.");
ABSL_FLAG(double, num_cpus, 0, "CPUs that the node offers.");
ABSL_FLAG(double, num_gpus, 0, "GPUs that the node offers.");
ABSL_FLAG(std::string, resources, "", "Further resources: name=quantity,...");
ABSL_FLAG(int64_t, shared_memory_mb, -1,
          "Memory that each actor process may lend; -1: a quarter of all.");
ABSL_FLAG(int64_t, object_store_bytes, 0,
          "Memory of the node's object store; 0: 30 % of all.");
ABSL_FLAG(std::string, object_spill_dir, "",
          "Folder for objects that have no room in memory.");
ABSL_FLAG(std::string, node_ip, "", "IP address the node's actors listen on.");
ABSL_FLAG(absl::Duration, fence_after, absl::ZeroDuration(),
          "Silence of the head after which a node ends its actors.");
ABSL_FLAG(absl::Duration, headless_timeout, absl::Hours(1),
          "How long a node waits for a head that is dead.");
ABSL_FLAG(absl::Duration, connect_timeout, absl::Seconds(10),
          "How long a node that starts tries to reach its head.");
ABSL_FLAG(absl::Duration, stop_grace, absl::Seconds(1),
          "What an actor has to end before it is killed.");
ABSL_FLAG(absl::Duration, job_stop_grace, absl::Seconds(5),
          "What a job's program has to end before it is killed.");
ABSL_FLAG(absl::Duration, answer_timeout, absl::Seconds(20),
          "What the head may take to accept a node.");
ABSL_FLAG(absl::Duration, fetch_timeout, absl::Minutes(10),
          "What the fetching of one program may take.");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(1),
          "How long the output of an ended process is read on.");
ABSL_FLAG(absl::Duration, memory_period, absl::Milliseconds(250),
          "Between two looks at the memory.");
ABSL_FLAG(double, memory_limit, 0.95,
          "Part of the memory beyond which an actor is killed; 0: never.");
ABSL_FLAG(int, metrics_port, 0,
          "Port of the node's /metrics; 0: any that is free, -1: none.");
ABSL_FLAG(int64_t, package_cache_bytes, int64_t{10} << 30,
          "Room for programs that no actor uses.");
ABSL_FLAG(int64_t, log_max_bytes, 32 << 20, "Size of one log file.");
ABSL_FLAG(int, log_files, 5, "Log files kept of one actor.");
ABSL_FLAG(int64_t, log_total_bytes, int64_t{10} << 30,
          "Of all logs of the node together.");
ABSL_FLAG(std::string, labels, "", "Of the node: name=value,...");
ABSL_FLAG(int64_t, package_limit, int64_t{20} << 30,
          "Bytes of packages that the head keeps.");
ABSL_FLAG(std::string, token_file, "", "File with the cluster's token.");
ABSL_FLAG(std::string, tls_dir, "", "Folder with ca.crt, node.crt, node.key.");
ABSL_FLAG(std::string, ca_dir, "", "Folder with ca.crt and ca.key.");
ABSL_FLAG(int, days, 365, "How long a node's certificate is valid.");
ABSL_FLAG(std::string, inject_faults, "",
          "Lets calls fail on purpose; for tests.");
ABSL_FLAG(bool, block, false, "Stay in the foreground.");
ABSL_FLAG(std::string, format, "table", "table or json.");
ABSL_FLAG(bool, force, false, "Kill at once.");
ABSL_FLAG(absl::Duration, grace, absl::Seconds(10),
          "What those that are stopped have before they are killed.");
ABSL_FLAG(double, timeout, 0, "Time limit in seconds; 0: the verb's own.");
ABSL_FLAG(double, head_patience, 60,
          "How long to wait for a head that does not answer, in seconds.");
ABSL_FLAG(bool, all, false, "Also what has ended.");
ABSL_FLAG(bool, wait, true, "Stay until the job has ended.");
ABSL_FLAG(std::string, working_dir, "", "Folder that goes with the job.");
ABSL_FLAG(int64_t, max_folder_bytes, int64_t{500} << 20,
          "Size limit of the working folder.");
ABSL_FLAG(std::string, job_id, "", "What the job is called.");
ABSL_FLAG(std::string, job, "", "Only this job's.");
ABSL_FLAG(std::string, run, "", "Only this run.");
ABSL_FLAG(std::string, output, "", "File to write.");
ABSL_FLAG(bool, watch, false, "Go on, and show what changes.");
ABSL_FLAG(double, interval, 1, "Between two looks, in seconds.");
ABSL_FLAG(std::string, sort, "cpu", "cpu, memory or name.");
ABSL_FLAG(bool, follow, false, "Go on as it is written.");
ABSL_FLAG(int64_t, tail, 0, "Only the last so many lines; 0: all.");

// For the processes of the runtime among themselves.
ABSL_FLAG(
    int, ready_fd, -1,
    "One line of JSON goes here when the process is ready, or cannot be.");
ABSL_FLAG(int, lifeline_fd, -1,
          "The process stops when this reads end-of-file.");
ABSL_FLAG(bool, detached, false,
          "Output goes to the log; every other inherited file is closed.");
