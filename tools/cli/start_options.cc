#include "tools/cli/start_options.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/files.h"
#include "runtime/base/memory_limit.h"
#include "runtime/base/net.h"
#include "runtime/base/silence.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "runtime/rpc/fault_injector.h"
#include "runtime/rpc/redialler.h"
#include "tools/cli/flags.h"
#include "tools/cli/start_flags.h"
#include "tools/cli/time_limit.h"

namespace miniray::cli {
namespace {

constexpr int kMaxPort = 65535;
constexpr absl::Duration kYear = absl::Hours(24 * 365);
// What a start may take beside dialling the head, where --timeout is not given.
constexpr absl::Duration kStartTime = absl::Seconds(20);
constexpr int64_t kMinLogBytes = 1024;
constexpr int kMaxLogFiles = 1000;
constexpr int64_t kMaxSharedMemoryMb = int64_t{1} << 40;

bool IsIpAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

absl::Status CheckPort(absl::string_view flag, int port, int lowest) {
  if (port >= lowest && port <= kMaxPort) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", port, ": a port is in [", lowest, ", ", kMaxPort, "]"));
}

absl::Status CheckQuantity(absl::string_view flag, double quantity) {
  if (std::isfinite(quantity) && quantity >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--", flag, "=", quantity, ": it must be a number that is not negative"));
}

absl::Status CheckFd(absl::string_view flag, int fd) {
  if (fd == -1 || fcntl(fd, F_GETFD) != -1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", fd, " is not an open file descriptor"));
}

// A flag that would have no effect is a misunderstanding.
absl::Status RefuseFlags(const CommandLine& line,
                         const std::vector<std::string>& flags,
                         absl::string_view why) {
  for (const std::string& flag : flags) {
    if (line.Has(flag)) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", why));
    }
  }
  return absl::OkStatus();
}

// A flag with a period, where it goes, and what makes sense.
struct Period {
  const char* name;
  const absl::Flag<absl::Duration>& flag;
  absl::Duration* value;
  absl::Duration least;
  absl::Duration most = kYear;
};

absl::Status ReadPeriods(const std::vector<Period>& periods) {
  for (const Period& period : periods) {
    *period.value = absl::GetFlag(period.flag);
    if (*period.value >= period.least && *period.value <= period.most) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--", period.name, "=", absl::FormatDuration(*period.value),
        ": must be between ", absl::FormatDuration(period.least), " and ",
        period.most == kYear ? "a year" : absl::FormatDuration(period.most),
        "; write e.g. 500ms, 10s, 2m"));
  }
  return absl::OkStatus();
}

absl::Status ReadHeadPeriods(StartOptions* options) {
  constexpr absl::Duration kNone = absl::ZeroDuration();
  MR_RETURN_IF_ERROR(ReadPeriods({
      {"lease", FLAGS_lease, &options->lease, absl::Milliseconds(100)},
      {"driver_grace", FLAGS_driver_grace, &options->driver_grace, kNone},
      {"infeasible_timeout", FLAGS_infeasible_timeout,
       &options->infeasible_timeout, kNone},
      {"group_patience", FLAGS_group_patience, &options->group_patience, kNone},
      {"group_hold", FLAGS_group_hold, &options->group_hold,
       absl::Milliseconds(100)},
      {"max_restart_delay", FLAGS_max_restart_delay,
       &options->max_restart_delay, kNone},
      {"long_life", FLAGS_long_life, &options->long_life, kNone},
      {"reconnect_timeout", FLAGS_reconnect_timeout,
       &options->reconnect_timeout, absl::Milliseconds(100)},
      {"session_life", FLAGS_session_life, &options->session_life,
       absl::Milliseconds(100)},
      {"max_reconnect_pause", FLAGS_max_reconnect_pause,
       &options->max_reconnect_pause, absl::Milliseconds(10), kMaxRedialPause},
  }));
  if (options->session_life < options->reconnect_timeout) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--session_life=", absl::FormatDuration(options->session_life),
        ": must not be less than --reconnect_timeout (",
        absl::FormatDuration(options->reconnect_timeout),
        "), or an actor forgets calls that their caller still waits for"));
  }
  return absl::OkStatus();
}

// Of both. What a head was told it also tells the one that goes on for it.
absl::Status ReadSilenceTimeout(const CommandLine& line,
                                StartOptions* options) {
  absl::Duration timeout;
  MR_RETURN_IF_ERROR(
      ReadPeriods({{"silence_timeout", FLAGS_silence_timeout, &timeout,
                    kMinSilenceTimeout, kMaxSilenceTimeout}}));
  if (line.Has("silence_timeout") || timeout != kDefaultSilenceTimeout) {
    options->silence_timeout = timeout;
  }
  return absl::OkStatus();
}

absl::Status ReadNodePeriods(const CommandLine& line, StartOptions* options) {
  constexpr absl::Duration kNone = absl::ZeroDuration();
  return ReadPeriods({
      // Zero is the default alone, and means three leases.
      {"fence_after", FLAGS_fence_after, &options->fence_after,
       line.Has("fence_after") ? absl::Milliseconds(100) : kNone},
      {"headless_timeout", FLAGS_headless_timeout, &options->headless_timeout,
       kNone},
      {"connect_timeout", FLAGS_connect_timeout, &options->connect_timeout,
       absl::Milliseconds(100)},
      {"stop_grace", FLAGS_stop_grace, &options->stop_grace, kNone},
      {"job_stop_grace", FLAGS_job_stop_grace, &options->job_stop_grace, kNone},
      {"answer_timeout", FLAGS_answer_timeout, &options->answer_timeout,
       absl::Milliseconds(100)},
      {"fetch_timeout", FLAGS_fetch_timeout, &options->fetch_timeout,
       absl::Seconds(1)},
      {"drain_timeout", FLAGS_drain_timeout, &options->drain_timeout, kNone},
      {"memory_period", FLAGS_memory_period, &options->memory_period,
       absl::Milliseconds(10)},
  });
}

absl::Status ReadHeadLimits(StartOptions* options) {
  options->max_state_bytes = absl::GetFlag(FLAGS_max_state_bytes);
  if (options->max_state_bytes < 0) {
    return absl::InvalidArgumentError("--max_state_bytes must not be negative");
  }
  options->package_limit = absl::GetFlag(FLAGS_package_limit);
  if (options->package_limit < 0) {
    return absl::InvalidArgumentError("--package_limit must not be negative");
  }
  options->max_waiting = absl::GetFlag(FLAGS_max_waiting);
  if (options->max_waiting < 1) {
    return absl::InvalidArgumentError("--max_waiting must be 1 or more");
  }
  return absl::OkStatus();
}

absl::Status ReadHeadOptions(const CommandLine& line, StartOptions* options) {
  if (line.Has("address")) {
    return absl::InvalidArgumentError(
        "give --head to start a cluster or --address to join one, not both");
  }
  options->host = absl::GetFlag(FLAGS_host);
  options->host_given = line.Has("host");
  if (options->host == "localhost") options->host = "127.0.0.1";
  if (!IsIpAddress(options->host)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--host=", options->host,
        " is not an IP address; give one of this "
        "machine's, e.g. 127.0.0.1 for this machine only, 0.0.0.0 for all"));
  }
  options->port = absl::GetFlag(FLAGS_port);
  MR_RETURN_IF_ERROR(CheckPort("port", options->port, 0));
  options->port_given = line.Has("port");
  MR_RETURN_IF_ERROR(ReadHeadPeriods(options));
  MR_RETURN_IF_ERROR(ReadHeadLimits(options));
  if (const std::string dir = absl::GetFlag(FLAGS_state_dir); !dir.empty()) {
    // One name for one folder.
    const std::filesystem::path path =
        std::filesystem::absolute(dir).lexically_normal();
    options->state_dir =
        (path.has_filename() ? path : path.parent_path()).string();
  } else if (line.Has("state_dir")) {
    return absl::InvalidArgumentError("--state_dir needs the name of a folder");
  }
  options->dashboard_port = absl::GetFlag(FLAGS_dashboard_port);
  MR_RETURN_IF_ERROR(CheckPort("dashboard_port", options->dashboard_port, -1));
  options->with_daemon = absl::GetFlag(FLAGS_num_cpus) > 0;
  if (!options->with_daemon) {
    // --num_cpus=0 says the same as none.
    std::vector<std::string> flags = DaemonFlags();
    std::erase(flags, "num_cpus");
    MR_RETURN_IF_ERROR(RefuseFlags(line, flags,
                                   "is for a worker daemon; with --head, add "
                                   "--num_cpus to start one too"));
  }
  return absl::OkStatus();
}

absl::Status ReadDaemonOptions(const CommandLine& line, StartOptions* options) {
  options->address = absl::GetFlag(FLAGS_address);
  const absl::StatusOr<HostPort> head = ParseHostPort(options->address);
  if (!head.ok()) return Annotate(head.status(), "--address");
  return RefuseFlags(line, JoinFlags({HeadPlaceFlags(), HeadTuningFlags()}),
                     "is for a head; it goes with --head");
}

absl::Status ReadNodeOptions(const CommandLine& line, StartOptions* options) {
  MR_ASSIGN_OR_RETURN(options->resources,
                      ParseResources(absl::GetFlag(FLAGS_resources)));
  auto& quantity = *options->resources.mutable_quantity();
  quantity["CPU"] =
      line.Has("num_cpus") ? absl::GetFlag(FLAGS_num_cpus) : UsableCpus();
  if (const double gpus = absl::GetFlag(FLAGS_num_gpus); gpus > 0) {
    quantity["GPU"] = gpus;
  }
  if (!quantity.contains("memory")) {
    quantity["memory"] = static_cast<double>(UsableMemoryBytes());
  }
  MR_RETURN_IF_ERROR(ReadNodePeriods(line, options));
  options->memory_limit = absl::GetFlag(FLAGS_memory_limit);
  if (!(options->memory_limit >= 0 && options->memory_limit <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--memory_limit=", options->memory_limit,
                     ": it is a part of the memory, 0 to 1, e.g. 0.9"));
  }
  options->metrics_port = absl::GetFlag(FLAGS_metrics_port);
  MR_RETURN_IF_ERROR(CheckPort("metrics_port", options->metrics_port, -1));
  options->package_cache_bytes = absl::GetFlag(FLAGS_package_cache_bytes);
  MR_RETURN_IF_ERROR(
      CheckQuantity("package_cache_bytes",
                    static_cast<double>(options->package_cache_bytes)));
  options->log_max_bytes = absl::GetFlag(FLAGS_log_max_bytes);
  options->log_files = absl::GetFlag(FLAGS_log_files);
  if (options->log_max_bytes < kMinLogBytes || options->log_files < 1 ||
      options->log_files > kMaxLogFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat("--log_max_bytes is at least ", kMinLogBytes,
                     ", --log_files 1 to ", kMaxLogFiles));
  }
  options->log_total_bytes = absl::GetFlag(FLAGS_log_total_bytes);
  MR_RETURN_IF_ERROR(CheckQuantity(
      "log_total_bytes", static_cast<double>(options->log_total_bytes)));
  MR_ASSIGN_OR_RETURN(options->labels,
                      ParseLabels(absl::GetFlag(FLAGS_labels)));
  options->shared_memory_mb = absl::GetFlag(FLAGS_shared_memory_mb);
  if (options->shared_memory_mb < -1 ||
      options->shared_memory_mb > kMaxSharedMemoryMb) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shared_memory_mb=", options->shared_memory_mb,
                     ": it must be 0 (none) to ", kMaxSharedMemoryMb,
                     ", or -1 (a quarter of the machine's memory)"));
  }
  options->object_store_bytes = absl::GetFlag(FLAGS_object_store_bytes);
  MR_RETURN_IF_ERROR(CheckQuantity(
      "object_store_bytes", static_cast<double>(options->object_store_bytes)));
  if (const std::string dir = absl::GetFlag(FLAGS_object_spill_dir);
      !dir.empty()) {
    options->object_spill_dir = std::filesystem::absolute(dir).string();
  }
  options->node_ip = absl::GetFlag(FLAGS_node_ip);
  if (!options->node_ip.empty() && !IsOwnAddress(options->node_ip)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--node_ip=", options->node_ip,
                     " is not an IP address of this machine"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StartOptions> ReadStartOptions(const CommandLine& line) {
  StartOptions options;
  options.head = absl::GetFlag(FLAGS_head);
  if (!options.head && !line.Has("address")) {
    return absl::InvalidArgumentError(
        "give --head to start a cluster, or --address HOST:PORT to join one");
  }
  MR_RETURN_IF_ERROR(CheckQuantity("num_cpus", absl::GetFlag(FLAGS_num_cpus)));
  MR_RETURN_IF_ERROR(CheckQuantity("num_gpus", absl::GetFlag(FLAGS_num_gpus)));
  MR_RETURN_IF_ERROR(
      Annotate(ParseFaultSpec(absl::GetFlag(FLAGS_inject_faults)).status(),
               "--inject_faults"));
  MR_RETURN_IF_ERROR(options.head ? ReadHeadOptions(line, &options)
                                  : ReadDaemonOptions(line, &options));
  MR_RETURN_IF_ERROR(ReadNodeOptions(line, &options));
  MR_RETURN_IF_ERROR(ReadSilenceTimeout(line, &options));
  MR_RETURN_IF_ERROR(CheckTimeoutFlag(line));
  options.timeout = TimeLimit(line, options.connect_timeout + kStartTime);
  options.block = absl::GetFlag(FLAGS_block);
  options.detached = absl::GetFlag(FLAGS_detached);
  options.ready_fd = absl::GetFlag(FLAGS_ready_fd);
  options.lifeline_fd = absl::GetFlag(FLAGS_lifeline_fd);
  if (options.block) {
    MR_RETURN_IF_ERROR(
        RefuseFlags(line, {"timeout"},
                    "is for a start in the background, without --block"));
  } else {
    MR_RETURN_IF_ERROR(RefuseFlags(
        line, {"ready_fd", "lifeline_fd", "detached"}, "goes with --block"));
  }
  MR_RETURN_IF_ERROR(CheckFd("ready_fd", options.ready_fd));
  MR_RETURN_IF_ERROR(CheckFd("lifeline_fd", options.lifeline_fd));
  return options;
}

bool IsOwnAddress(const std::string& ip) {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    if (v4->sin_addr.s_addr == htonl(INADDR_ANY)) return false;
    storage.ss_family = AF_INET;
    size = sizeof(*v4);
  } else if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    if (IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr)) return false;
    storage.ss_family = AF_INET6;
    size = sizeof(*v6);
  } else {
    return false;
  }
  const ScopedFd fd(socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd.valid() &&
         bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), size) == 0;
}

absl::StatusOr<v1::Resources> ParseResources(absl::string_view list) {
  v1::Resources resources;
  for (absl::string_view item : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(parts.first));
    double value = 0;
    if (name.empty() || !IsUtf8(name) ||
        !absl::SimpleAtod(parts.second, &value) || !std::isfinite(value) ||
        value < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--resources: '", ToUtf8(std::string(item)),
          "' is not name=quantity with a quantity that is not negative"));
    }
    if (name == "CPU" || name == "GPU") {
      return absl::InvalidArgumentError(
          absl::StrCat("--resources: for ", name, " there is --num_",
                       absl::AsciiStrToLower(name), "s"));
    }
    if (!resources.mutable_quantity()->insert({name, value}).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--resources: '", name, "' is there twice"));
    }
  }
  return resources;
}

absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    absl::string_view list) {
  std::map<std::string, std::string> labels;
  for (absl::string_view item : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(item, absl::MaxSplits('=', 1));
    const std::string name(absl::StripAsciiWhitespace(parts.first));
    const std::string value(absl::StripAsciiWhitespace(parts.second));
    if (name.empty() || value.empty() || !IsUtf8(name) || !IsUtf8(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--labels: '", ToUtf8(std::string(item)), "' is not name=value"));
    }
    if (!labels.emplace(name, value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--labels: '", name, "' is there twice"));
    }
  }
  return labels;
}

int UsableCpus() {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) return CPU_COUNT(&cpus);
  // More than 1024 CPUs.
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace miniray::cli
