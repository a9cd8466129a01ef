#include "tools/cli/foreground.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/background.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/net.h"
#include "runtime/base/process_records.h"
#include "runtime/base/silence.h"
#include "runtime/base/status_macros.h"
#include "runtime/dashboard/dashboard_server.h"
#include "runtime/head/head_metrics.h"
#include "runtime/head/head_server.h"
#include "runtime/head/state_folder.h"
#include "runtime/rpc/tls.h"
#include "runtime/runs/run_table.h"
#include "runtime/worker/worker_daemon.h"
#include "tools/cli/child.h"
#include "tools/cli/head_flags.h"
#include "tools/cli/head_state.h"
#include "tools/cli/killed_heads.h"
#include "tools/cli/launch.h"
#include "tools/cli/other_daemons.h"
#include "tools/cli/ready.h"
#include "tools/cli/session.h"
#include "tools/cli/shell_word.h"
#include "tools/cli/stop_events.h"
#include "tools/cli/token.h"

namespace miniray::cli {
namespace {

// What the daemon of this process has to end, beyond the grace of its actors.
// Internal: it ends by itself.
constexpr absl::Duration kChildStopGrace = absl::Seconds(10);
// What the dashboard waits for an actor's word of its calls. Internal.
constexpr absl::Duration kInspectTimeout = absl::Seconds(2);

// Of head.log and daemon.log, and of what is kept of each beside it; and how
// often that is looked at. Internal.
constexpr int64_t kMaxLogBytes = 16 << 20;
constexpr absl::Duration kLogPeriod = absl::Seconds(10);

// Sends stdout and stderr to `path` and closes what else was inherited: a
// process in the background must not keep a pipe of whoever started it open.
absl::Status Detach(const std::string& path, int ready_fd) {
  const ScopedFd log(
      open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid() || dup2(log.get(), STDOUT_FILENO) < 0 ||
      dup2(log.get(), STDERR_FILENO) < 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", path));
  }
  if (ready_fd > 3) close_range(3, ready_fd - 1, 0);
  close_range(std::max(ready_fd, 2) + 1, ~0U, 0);
  return absl::OkStatus();
}

struct Session {
  std::string folder;
  std::string log;  // Empty: stderr.
};

absl::StatusOr<Session> OpenSession(const StartOptions& options) {
  Session session;
  MR_ASSIGN_OR_RETURN(session.folder, CreateSession());
  if (options.detached) {
    session.log = absl::StrCat(session.folder,
                               options.head ? "/head.log" : "/daemon.log");
    MR_RETURN_IF_ERROR(Detach(session.log, options.ready_fd));
  }
  FLAGS_logtostderr = true;
  google::InitGoogleLogging("miniray");
  return session;
}

// Fills in how to add a node and where the dashboard is. The token is shown to
// a terminal or to who started this process; else the output may be a log, and
// the command reads a file.
absl::Status DescribeAccess(const Session& session, const std::string& token,
                            bool may_show_token, int dashboard_port,
                            ReadyMessage* message) {
  message->join = absl::StrCat("miniray start --address ", message->address);
  // The other machine's folder may be another one, but has to be there.
  if (const std::string dir = TlsDir(); !dir.empty()) {
    absl::StrAppend(&message->join, " --tls_dir ", ShellWord(dir));
  }
  if (dashboard_port >= 0) {
    message->dashboard = absl::StrCat(TlsDir().empty() ? "http" : "https",
                                      "://127.0.0.1:", dashboard_port);
  }
  if (token.empty()) return absl::OkStatus();
  const std::string file = absl::StrCat(session.folder, "/token");
  MR_RETURN_IF_ERROR(WriteFileAtomically(file, token + "\n", 0600));
  message->join = absl::StrCat(
      "MINIRAY_TOKEN=",
      may_show_token ? ShellWord(token)
                     : absl::StrCat("\"$(cat ", ShellWord(file), ")\""),
      " ", message->join);
  if (may_show_token && dashboard_port >= 0) {
    absl::StrAppend(&message->dashboard, "/?token=", QueryValue(token));
  }
  return absl::OkStatus();
}

absl::Status Advise(const absl::Status& status, absl::string_view advice) {
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "; ", advice));
}

absl::StatusOr<std::unique_ptr<HeadServer>> StartHead(
    const StartOptions& options, const std::string& token,
    const HeadState& state) {
  const std::string advice =
      state.resumes
          ? absl::StrCat(
                "the nodes of the head that was killed there look for "
                "it at that port: free it, or end that cluster with: "
                "miniray stop --address ",
                JoinHostPort(AdvertisedHost(state.host), state.port))
          : "choose another --port, 0 for any that is free";
  if (state.is_default && StateFolder::InUse(state.folder)) {
    return Advise(absl::UnavailableError(absl::StrCat(
                      "cannot listen on ", JoinHostPort(state.host, state.port),
                      ": the port is in use by another head of yours")),
                  advice);
  }
  auto head =
      HeadServer::Start({.host = state.host,
                         .port = state.port,
                         .token = token,
                         .state_dir = state.folder,
                         .lease = options.lease,
                         .driver_grace = options.driver_grace,
                         .infeasible_timeout = options.infeasible_timeout,
                         .group_patience = options.group_patience,
                         .group_hold = options.group_hold,
                         .max_restart_delay = options.max_restart_delay,
                         .long_life = options.long_life,
                         .reconnect_timeout = options.reconnect_timeout,
                         .session_life = options.session_life,
                         .max_reconnect_pause = options.max_reconnect_pause,
                         .max_waiting = options.max_waiting,
                         .package_limit = options.package_limit,
                         .max_state_bytes = options.max_state_bytes});
  if (absl::IsUnavailable(head.status())) return Advise(head.status(), advice);
  if (absl::IsInvalidArgument(head.status())) {
    return Advise(head.status(),
                  "give one that is with --host, e.g. 127.0.0.1 for this "
                  "machine only, 0.0.0.0 for all");
  }
  return head;
}

// What the dashboard shows and does in this head. `head` outlives it.
void ConnectHead(HeadServer* head, DashboardServer::Options* options) {
  options->state = [head] { return head->GetState(); };
  options->select_state = [head](const auto& tables, const auto& keep_actor) {
    return head->SelectState(tables, keep_actor);
  };
  options->state_fingerprint = [head] { return head->StateFingerprint(); };
  options->usage = [head](const std::vector<std::string>& actor_ids) {
    return head->GetUsage(actor_ids);
  };
  options->call_records = [head](const v1::GetCallRecordsRequest& request) {
    return head->GetCallRecords(request);
  };
  options->inspect_actor = [head](const std::string& actor_id) {
    return head->InspectActor(actor_id, kInspectTimeout);
  };
  options->read_log = [head](const v1::ReadLogRequest& request)
      -> absl::StatusOr<DashboardServer::LogSource> {
    MR_ASSIGN_OR_RETURN(std::shared_ptr<LogChunkReader> reader,
                        head->ReadLog(request));
    return [reader](absl::Duration timeout) { return reader->Next(timeout); };
  };
  options->stop_job = [head](const v1::StopJobRequest& request)
      -> absl::StatusOr<v1::StopJobResponse> {
    MR_RETURN_IF_ERROR(head->StopJob(request.job_id()));
    return v1::StopJobResponse();
  };
  RunTable* const runs = &head->runs();
  options->list_runs = [runs](const v1::ListRunsRequest& request) {
    return runs->List(request);
  };
  options->get_run = [runs](const v1::GetRunRequest& request) {
    return runs->Get(request);
  };
  options->get_run_image = [runs](const v1::GetRunImageRequest& request) {
    return runs->GetImage(request);
  };
  options->stop_run = [runs](const v1::StopRunRequest& request) {
    return runs->Stop(request);
  };
  options->await_runs = [runs](int64_t version, absl::Duration timeout) {
    return runs->AwaitChange(version, timeout);
  };
  options->metrics = [head, runs] {
    return HeadMetricsPage(head->GetCounts(), [runs] {
      return runs->List({}).value_or(v1::ListRunsResponse());
    });
  };
  options->metric_targets = [head](const std::string& host) {
    return PrometheusTargets(head->GetCounts(), host,
                             /*tls=*/!TlsDir().empty());
  };
}

absl::StatusOr<std::unique_ptr<DashboardServer>> StartDashboard(
    const StartOptions& options, const std::string& token, HeadServer* head) {
  if (options.dashboard_port < 0) return nullptr;
  DashboardServer::Options shown = {
      .port = options.dashboard_port, .token = token, .tls_dir = TlsDir()};
  ConnectHead(head, &shown);
  auto dashboard = DashboardServer::Start(std::move(shown));
  if (absl::IsUnavailable(dashboard.status())) {
    return Advise(dashboard.status(),
                  "choose another --dashboard_port, 0 for any that is free, -1 "
                  "for no dashboard");
  }
  return dashboard;
}

void KeepLogLimited(const std::string& log) {
  LimitLog(log, kMaxLogBytes);
  RunInBackground([log] { KeepLogLimited(log); }, kLogPeriod);
}

// Says that this process is ready, then blocks until it is to stop.
absl::StatusOr<StopEvents::Event> Serve(const ReadyMessage& message,
                                        const std::string& description,
                                        ReadyPipe* ready, StopEvents* stop,
                                        int child_pidfd = -1) {
  if (ready->has_reader()) {
    MR_RETURN_IF_ERROR(ready->Send(message));
  } else {
    std::cout << description << std::flush;
  }
  const std::string name =
      message.node_id.empty() ? "the head" : message.node_id;
  LOG(INFO) << name << " is ready, head address " << message.address;
  if (!message.log.empty()) KeepLogLimited(message.log);
  StopEvents::Event event = stop->Wait(child_pidfd);
  LOG(INFO) << name << " stops: " << event.what;
  return event;
}

// Removes the record of this process at the end.
class OwnRecord {
 public:
  static absl::StatusOr<OwnRecord> Write(const ProcessRecord& record) {
    MR_RETURN_IF_ERROR(WriteOwnProcessRecord(record));
    return OwnRecord();
  }
  OwnRecord(OwnRecord&& other) : written_(std::exchange(other.written_, 0)) {}
  ~OwnRecord() {
    if (written_) (void)RemoveProcessRecord(getpid());
  }

 private:
  OwnRecord() = default;

  bool written_ = true;
};

// Returns when it is to stop. *started: nothing went wrong until it was ready.
absl::Status ServeHead(const CommandLine& line, const StartOptions& options,
                       const std::string& state_folder,
                       const ReadyMessage& message, ReadyPipe* ready,
                       StopEvents* stop, bool* started) {
  std::string description = DescribeHead(message);
  std::optional<LaunchedDaemon> daemon;
  if (options.with_daemon) {
    MR_ASSIGN_OR_RETURN(
        daemon, LaunchDaemon(line, message.address, Child::Mode::kAttached,
                             *stop, options.timeout));
    absl::StrAppend(&description, DescribeDaemon(daemon->message));
  }
  MR_RETURN_IF_ERROR(RememberHeadFlags(state_folder));
  const absl::StatusOr<StopEvents::Event> event =
      Serve(message, description, ready, stop,
            daemon.has_value() ? daemon->child.pidfd() : -1);
  if (daemon.has_value()) {
    daemon->child.Stop(kChildStopGrace + options.stop_grace);
  }
  MR_RETURN_IF_ERROR(event.status());
  *started = event->kind != StopEvents::Kind::kFailedStart;
  // It ends with 0 where somebody stopped it in good order.
  if (event->kind == StopEvents::Kind::kChildEnded &&
      !daemon->child.EndedWell()) {
    return absl::AbortedError(daemon->child.HowItEnded());
  }
  return absl::OkStatus();
}

// A cluster that waits for another head than the one that starts.
std::string WarnOfKilledHeads(const HeadState& state) {
  if (state.resumes) return "";
  const std::vector<KilledHead> killed = ListKilledHeads();
  if (killed.empty()) return "";
  return absl::StrCat("this is a new cluster, and an earlier one is left: ",
                      Advice(killed[0]));
}

// What this process starts inherits it. Comes before all connections.
void UseSilenceTimeout(const StartOptions& options) {
  if (!options.silence_timeout.has_value()) return;
  setenv(kSilenceTimeoutVariable,
         absl::FormatDuration(*options.silence_timeout).c_str(),
         /*replace=*/1);
}

absl::Status RunHead(const CommandLine& line, StartOptions options,
                     const Session& session, ReadyPipe* ready) {
  MR_ASSIGN_OR_RETURN(std::string token, GivenToken());
  MR_ASSIGN_OR_RETURN(const HeadState state,
                      ChooseHeadState(options, token, GivenTlsDir()));
  if (state.resumes) {
    MR_RETURN_IF_ERROR(RecallHeadFlags(line, state.folder));
    MR_ASSIGN_OR_RETURN(options, ReadStartOptions(line));
    UseSilenceTimeout(options);
  }
  token = state.token;
  if (token.empty() && !IsLoopback(state.host)) token = NewToken();
  MR_RETURN_IF_ERROR(Annotate(UseTls(state.tls_dir), "TLS"));

  MR_ASSIGN_OR_RETURN(StopEvents stop,
                      StopEvents::Install(options.lifeline_fd));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<HeadServer> head,
                      StartHead(options, token, state));
  std::optional<OwnRecord> record;  // Goes when the head no longer answers.
  bool started = false;
  const auto end = absl::MakeCleanup([&] {
    head->Shutdown(started ? HeadServer::End::kFinal
                           : HeadServer::End::kFailedStart);
    if (started || !state.resumes) RemoveHeadState(state);
  });
  if (!state.is_default) MR_RETURN_IF_ERROR(LinkHeadState(state.folder));
  MR_ASSIGN_OR_RETURN(const std::unique_ptr<DashboardServer> dashboard,
                      StartDashboard(options, token, head.get()));
  const int dashboard_port = dashboard == nullptr ? -1 : dashboard->port();
  ReadyMessage message = {
      .address = JoinHostPort(AdvertisedHost(state.host), head->port()),
      .pid = getpid(),
      .resumed = head->resumed(),
      .warning = WarnOfKilledHeads(state),
      .session_dir = session.folder,
      .log = session.log};
  if (!message.warning.empty()) LOG(WARNING) << message.warning;
  const bool may_show_token = ready->has_reader() || isatty(STDOUT_FILENO) != 0;
  MR_RETURN_IF_ERROR(
      DescribeAccess(session, token, may_show_token, dashboard_port, &message));

  MR_ASSIGN_OR_RETURN(OwnRecord own,
                      OwnRecord::Write({.role = ProcessRole::kHead,
                                        .address = message.address,
                                        .listen_host = state.host,
                                        .dashboard_port = dashboard_port,
                                        .token = token,
                                        .tls_dir = TlsDir(),
                                        .session_dir = session.folder,
                                        .state_dir = state.folder,
                                        .lifeline = options.lifeline_fd >= 0}));
  record.emplace(std::move(own));
  return ServeHead(line, options, state.folder, message, ready, &stop,
                   &started);
}

absl::Status AdviseAboutKilledHead(const absl::Status& status,
                                   const std::string& address) {
  if (!absl::IsUnavailable(status)) return status;
  const std::optional<KilledHead> killed = FindKilledHead(address);
  return killed.has_value() ? Advise(status, Advice(*killed)) : status;
}

absl::Status RunDaemon(const StartOptions& options, const Session& session,
                       ReadyPipe* ready) {
  MR_ASSIGN_OR_RETURN(const std::string token, PrepareForHead(options.address));
  // Whoever started it may end while the head is still dialled.
  MR_ASSIGN_OR_RETURN(StopEvents stop,
                      StopEvents::Install(options.lifeline_fd));
  absl::StatusOr<std::unique_ptr<WorkerDaemon>> started =
      WorkerDaemon::Start({.head_address = options.address,
                           .token = token,
                           .resources = options.resources,
                           .labels = options.labels,
                           .node_ip = options.node_ip,
                           .session_dir = session.folder,
                           .connect_timeout = options.connect_timeout,
                           .cancelled = [&stop] { return stop.Pending(); },
                           .stop_grace = options.stop_grace,
                           .job_stop_grace = options.job_stop_grace,
                           .answer_timeout = options.answer_timeout,
                           .fetch_timeout = options.fetch_timeout,
                           .drain_timeout = options.drain_timeout,
                           .fence_after = options.fence_after,
                           .headless_timeout = options.headless_timeout,
                           .log_max_bytes = options.log_max_bytes,
                           .log_files = options.log_files,
                           .log_total_bytes = options.log_total_bytes,
                           .package_cache_bytes = options.package_cache_bytes,
                           .memory = {.limit = options.memory_limit,
                                      .period = options.memory_period},
                           .shared_memory_mb = options.shared_memory_mb,
                           .object_store_bytes = options.object_store_bytes,
                           .object_spill_dir = options.object_spill_dir,
                           .metrics_port = options.metrics_port,
                           .owns_process = true});
  if (absl::IsCancelled(started.status())) {
    LOG(INFO) << "stops before it joined: " << stop.Wait().what;
    return absl::OkStatus();
  }
  if (!started.ok()) {
    return started.status().code() == absl::StatusCode::kUnauthenticated
               ? Annotate(started.status(),
                          absl::StrCat("the head at ", options.address))
               : AdviseAboutKilledHead(started.status(), options.address);
  }
  WorkerDaemon& daemon = **started;

  MR_ASSIGN_OR_RETURN(const OwnRecord record,
                      OwnRecord::Write({.role = ProcessRole::kWorkerDaemon,
                                        .address = options.address,
                                        .token = token,
                                        .tls_dir = TlsDir(),
                                        .session_dir = session.folder,
                                        .node_id = daemon.node_id(),
                                        .lifeline = options.lifeline_fd >= 0}));
  const ReadyMessage message = {
      .address = options.address,
      .pid = getpid(),
      .node_id = daemon.node_id(),
      .warning = WarnOfOtherDaemons(options.address, token, daemon.node_id()),
      .session_dir = session.folder,
      .log = session.log};
  if (!message.warning.empty()) LOG(WARNING) << message.warning;
  const absl::StatusOr<StopEvents::Event> event =
      Serve(message, DescribeDaemon(message), ready, &stop);
  daemon.Shutdown();
  return event.status();
}

// An actor takes three of a daemon's files, whoever calls a head one of its.
void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status Run(const CommandLine& line, const StartOptions& options,
                 ReadyPipe* ready) {
  MR_ASSIGN_OR_RETURN(const Session session, OpenSession(options));
  UseSilenceTimeout(options);
  RaiseFileLimit();
  return options.head ? RunHead(line, options, session, ready)
                      : RunDaemon(options, session, ready);
}

}  // namespace

absl::Status RunForeground(const CommandLine& line,
                           const StartOptions& options) {
  // Not for actors and other children.
  for (const int fd : {options.ready_fd, options.lifeline_fd}) {
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  ReadyPipe ready(options.ready_fd);
  const absl::Status status = Run(line, options, &ready);
  if (!status.ok()) {
    (void)ready.Send({.error = std::string(status.message())});
  }
  return status;
}

}  // namespace miniray::cli
