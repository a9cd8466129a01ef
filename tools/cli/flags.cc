#include "tools/cli/flags.h"

#include "absl/flags/flag.h"

ABSL_FLAG(bool, head, false, "Start a head.");
ABSL_FLAG(std::string, host, "127.0.0.1", "IP address the head listens on.");
ABSL_FLAG(int, port, 6380, "Port of the head; 0: any that is free.");
ABSL_FLAG(int, dashboard_port, 8266,
          "Port of the dashboard; 0: any that is free, -1: no dashboard.");
ABSL_FLAG(std::string, address, "", "HOST:PORT of the head.");
ABSL_FLAG(double, num_cpus, 0, "CPUs that the node offers.");
ABSL_FLAG(double, num_gpus, 0, "GPUs that the node offers.");
ABSL_FLAG(std::string, resources, "", "Further resources: name=quantity,...");
ABSL_FLAG(std::string, node_ip, "", "IP address the node's actors listen on.");
ABSL_FLAG(std::string, token_file, "", "File with the cluster's token.");
ABSL_FLAG(std::string, tls_dir, "", "Folder with ca.crt, node.crt, node.key.");
ABSL_FLAG(std::string, ca_dir, "", "Folder with ca.crt and ca.key.");
ABSL_FLAG(int, days, 365, "How long a node's certificate is valid.");
ABSL_FLAG(bool, block, false, "Stay in the foreground.");
ABSL_FLAG(std::string, format, "table", "table or json.");
ABSL_FLAG(bool, force, false, "Kill at once.");

// For the processes of the runtime among themselves.
ABSL_FLAG(
    int, ready_fd, -1,
    "One line of JSON goes here when the process is ready, or cannot be.");
ABSL_FLAG(int, lifeline_fd, -1,
          "The process stops when this reads end-of-file.");
ABSL_FLAG(bool, detached, false,
          "Output goes to the log; every other inherited file is closed.");
