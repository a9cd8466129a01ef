#include "runtime/worker/worker_daemon.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "proto/head.grpc.pb.h"
#include "runtime/base/files.h"
#include "runtime/base/net.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/token.h"
#include "runtime/metrics/metric_page.h"
#include "runtime/metrics/metric_totals.h"
#include "runtime/metrics/metrics_server.h"
#include "runtime/metrics/system_metrics.h"
#include "runtime/rpc/head_channel.h"
#include "runtime/rpc/tls.h"
#include "runtime/worker/actor_table.h"
#include "runtime/worker/gpu_meter.h"
#include "runtime/worker/gpus.h"
#include "runtime/worker/head_link.h"
#include "runtime/worker/head_watch.h"
#include "runtime/worker/job_table.h"
#include "runtime/worker/lease_keeper.h"
#include "runtime/worker/log_file.h"
#include "runtime/worker/log_janitor.h"
#include "runtime/worker/log_server.h"
#include "runtime/worker/node_metrics.h"
#include "runtime/worker/oom_kills.h"
#include "runtime/worker/output_capture.h"
#include "runtime/worker/package_cache.h"
#include "runtime/worker/process_supervisor.h"
#include "runtime/worker/template_pool.h"
#include "runtime/worker/usage_meter.h"

namespace miniray {
namespace {

// Puts the parts together: the link hands the head's commands to whoever obeys
// them, and the parts tell the head what happens through the link.
class WorkerDaemonImpl : public WorkerDaemon {
 public:
  WorkerDaemonImpl(Options options, HostPort head, std::string node_ip)
      : options_(std::move(options)),
        head_(std::move(head)),
        node_ip_(std::move(node_ip)),
        channel_(MakeHeadChannel(options_.head_address)),
        stub_(v1::Head::NewStub(channel_)),
        packages_({.folder = options_.session_dir + "/packages",
                   .token = options_.token,
                   .max_bytes = options_.package_cache_bytes,
                   .fetch_timeout = options_.fetch_timeout},
                  stub_.get()),
        link_(
            {.head_address = options_.head_address,
             .token = options_.token,
             .channel = channel_.get(),
             .answer_timeout = options_.answer_timeout},
            stub_.get(),
            {.describe = [this](v1::RegisterNode* node) { Describe(node); },
             .on_command =
                 [this](const v1::NodeCommand& command) { Obey(command); },
             .on_given_up = [this] { GiveUp("the head gave this node up"); }}) {
  }

  ~WorkerDaemonImpl() override { Shutdown(); }

  absl::Status Begin() {
    MR_ASSIGN_OR_RETURN(
        const std::vector<std::string> gpu_ids,
        GpuIds(options_.resources, std::getenv("CUDA_VISIBLE_DEVICES")));
    const std::string logs = options_.session_dir + "/logs";
    MR_RETURN_IF_ERROR(MakeDirectories(logs, 0700));
    MR_ASSIGN_OR_RETURN(
        capture_,
        OutputCapture::Create({.file = {.max_bytes = options_.log_max_bytes,
                                        .max_files = options_.log_files},
                               .sink =
                                   [this](v1::ProcessOutput output, bool must) {
                                     return PassOn(std::move(output), must);
                                   },
                               .drain_timeout = options_.drain_timeout}));
    MR_ASSIGN_OR_RETURN(
        supervisor_,
        ProcessSupervisor::Create({.reap_orphans = options_.owns_process}));
    MR_ASSIGN_OR_RETURN(
        objects_, ObjectStore::Start(
                      {.host = node_ip_,
                       .token = options_.token,
                       .max_bytes = options_.object_store_bytes,
                       .spill_folder = options_.object_spill_dir.empty()
                                           ? options_.session_dir + "/spilled"
                                           : options_.object_spill_dir,
                       .check_period = options_.object_check_period}));
    templates_ = std::make_unique<TemplatePool>(
        TemplatePool::Options{.log_folder = logs}, supervisor_.get(),
        capture_.get());
    actors_ = std::make_unique<ActorTable>(
        ActorTable::Options{.node_ip = node_ip_,
                            .head_address = options_.head_address,
                            .token = options_.token,
                            .object_address = objects_->address(),
                            .log_folder = logs,
                            .stop_grace = options_.stop_grace,
                            .use_templates = options_.use_templates,
                            .shared_memory_mb = options_.shared_memory_mb,
                            .gpu_ids = gpu_ids},
        ActorTable::Parts{.link = &link_,
                          .packages = &packages_,
                          .supervisor = supervisor_.get(),
                          .capture = capture_.get(),
                          .templates = templates_.get(),
                          .objects = objects_.get(),
                          .oom_kills = &oom_kills_,
                          .metrics = &metrics_});
    const std::string job_logs = logs + "/jobs";
    MR_RETURN_IF_ERROR(MakeDirectories(job_logs, 0700));
    jobs_ = std::make_unique<JobTable>(
        JobTable::Options{.head_address = options_.head_address,
                          .token = options_.token,
                          .folder = options_.session_dir + "/jobs",
                          .log_folder = job_logs,
                          .gpu_ids = gpu_ids,
                          .stop_grace = options_.job_stop_grace},
        JobTable::Parts{.link = &link_,
                        .packages = &packages_,
                        .supervisor = supervisor_.get(),
                        .capture = capture_.get(),
                        .oom_kills = &oom_kills_});
    logs_ = std::make_unique<LogServer>(LogServer::Callbacks{
        .find =
            [this, logs](const v1::ReadNodeLog& request) {
              return FindLog(request, logs);
            },
        .send = [this](v1::LogChunk chunk) { return Send(std::move(chunk)); }});
    janitor_ = std::make_unique<LogJanitor>(
        LogJanitor::Options{.actor_folder = logs,
                            .job_folder = job_logs,
                            .max_bytes = options_.log_total_bytes},
        [this] {
          std::set<std::string> in_use = actors_->LogFiles();
          in_use.merge(jobs_->LogFiles());
          return in_use;
        });
    if (options_.metrics_port >= 0) {
      // Before the head hears of it.
      auto server =
          MetricsServer::Start({.host = node_ip_,
                                .port = options_.metrics_port,
                                .token = options_.token,
                                .tls_dir = TlsDir(),
                                .page = [this] { return MetricsPage(); }});
      if (absl::IsUnavailable(server.status())) {
        return absl::UnavailableError(
            absl::StrCat(server.status().message(),
                         "; choose another --metrics_port, 0 for any that is "
                         "free, -1 for none"));
      }
      MR_RETURN_IF_ERROR(server.status());
      metrics_server_ = *std::move(server);
      metrics_address_ = metrics_server_->address();
      LOG(INFO) << "metrics: " << (TlsDir().empty() ? "http" : "https") << "://"
                << metrics_address_ << "/metrics";
    }
    MR_RETURN_IF_ERROR(
        link_.Start(options_.connect_timeout, options_.cancelled));
    memory_ = std::make_unique<MemoryMonitor>(
        options_.memory,
        MemoryMonitor::Callbacks{
            .list = [this] { return actors_->Victims(); },
            .kill =
                [this](const MemoryMonitor::Victim& victim,
                       const std::string& cause) {
                  actors_->KillForMemory(victim.key, cause);
                },
            .report =
                [this](const MemoryReading& reading) { Report(reading); }});
    watch_ = std::make_unique<HeadWatch>(
        HeadWatch::Options{.head = head_,
                           .fence_after = options_.fence_after,
                           .headless_timeout = options_.headless_timeout},
        [this](const std::string& why) { CutOff(why); });
    lease_ = std::make_unique<LeaseKeeper>(
        options_.token, stub_.get(), &link_,
        [this](const grpc::Status& status, absl::Duration lease) {
          watch_->OnRenewal(status, lease);
        });
    return absl::OkStatus();
  }

  std::string node_id() const override { return link_.node_id(); }

  ObjectStore::Stats object_stats() const override {
    absl::MutexLock lock(&shutdown_mu_);
    return objects_ == nullptr ? ObjectStore::Stats{} : objects_->stats();
  }

  std::string metrics_address() const override { return metrics_address_; }

  void Shutdown() override {
    absl::MutexLock shutdown_lock(&shutdown_mu_);
    // It looks at the parts.
    metrics_server_.reset();
    memory_.reset();
    janitor_.reset();
    if (supervisor_ != nullptr) {
      // Or the head would start here again what is stopped here, until no
      // restart is left.
      v1::NodeMessage stopping;
      stopping.mutable_stopping();
      link_.Send(std::move(stopping));
      constexpr char kReason[] = "its node was stopped (miniray stop)";
      // Without them, it did not come to start.
      if (actors_ != nullptr) actors_->EndStarting(kReason);
      if (jobs_ != nullptr) jobs_->EndStarting(kReason);
      supervisor_->StopAll(options_.stop_grace);
      v1::NodeMessage leaving;
      leaving.mutable_leaving();
      link_.Send(std::move(leaving));
    }
    link_.Stop();
    lease_.reset();
    watch_.reset();
    logs_.reset();
    jobs_.reset();
    actors_.reset();
    supervisor_.reset();
    templates_.reset();
    capture_.reset();
    objects_.reset();
  }

 private:
  // The rest of a registration: what the node is, and what lives on it.
  void Describe(v1::RegisterNode* node) {
    node->set_hostname(Hostname());
    node->set_address(node_ip_);
    node->set_object_address(objects_->address());
    node->set_metrics_address(metrics_address_);
    node->set_pid(getpid());
    *node->mutable_total() = options_.resources;
    node->mutable_labels()->insert(options_.labels.begin(),
                                   options_.labels.end());
    actors_->Describe(node);
    jobs_->Describe(node);
    for (const std::string& job : objects_->Jobs()) node->add_object_jobs(job);
    // Who read them has heard that the stream broke.
    logs_->EndAll();
  }

  void Obey(const v1::NodeCommand& command) {
    switch (command.kind_case()) {
      case v1::NodeCommand::kStartActor:
        return actors_->Start(command.start_actor());
      case v1::NodeCommand::kStopActor:
        return actors_->Stop(command.stop_actor());
      case v1::NodeCommand::kStartJob:
        return jobs_->Start(command.start_job());
      case v1::NodeCommand::kStopJob:
        return jobs_->Stop(command.stop_job());
      case v1::NodeCommand::kReadLog:
        return logs_->Read(command.read_log());
      case v1::NodeCommand::kGrantLog:
        return logs_->Grant(command.grant_log());
      case v1::NodeCommand::kEndReadLog:
        return logs_->End(command.end_read_log().request_id());
      case v1::NodeCommand::kJobEnded:
        return objects_->EndJob(command.job_ended().job_id());
      case v1::NodeCommand::kJobBegan:
        return objects_->BeginJob(command.job_began().job_id());
      default:
        LOG(WARNING) << "a command of the head that this daemon does not know";
    }
  }

  // What there is when the server starts, and stays until it has ended.
  std::string MetricsPage() const {
    const ActorTable::Counts actors = actors_->counts();
    NodeFigures figures = {.node_id = link_.node_id(),
                           .hostname = Hostname(),
                           .head_connected = link_.attached(),
                           .actors = actors.actors,
                           .actor_processes = actors.processes,
                           .daemon_memory_kills = actors.memory_kills,
                           .kernel_memory_kills = oom_kills_.explained(),
                           .objects = objects_->stats(),
                           .gpus = gpu_meter_.Read()};
    if (const auto memory = options_.memory.read(); memory.ok()) {
      figures.memory = *memory;
    }
    MetricPage page;
    AddNodeMetrics(figures, &page);
    AddCpuMetrics(&page);
    AddProcessMetrics(&page);
    metrics_.AddTo(&page);
    return page.Text();
  }

  void Report(const MemoryReading& reading) {
    oom_kills_.Look();
    v1::NodeMessage message;
    v1::NodeStats* stats = message.mutable_stats();
    stats->set_memory_used_bytes(reading.used_bytes);
    stats->set_memory_total_bytes(reading.total_bytes);
    usage_.Measure(actors_->Running(), stats);
    for (MeasuredGpu& gpu : gpu_meter_.Read()) {
      *stats->add_gpus() = std::move(gpu.usage);
    }
    link_.TrySend(std::move(message));
  }

  // What processes printed, on its way to the head.
  bool PassOn(v1::ProcessOutput output, bool must) {
    v1::NodeMessage message;
    *message.mutable_output() = std::move(output);
    if (!must) return link_.TrySend(std::move(message));
    link_.Send(std::move(message));
    return true;
  }

  bool Send(v1::LogChunk chunk) {
    const bool must = chunk.last();
    v1::NodeMessage message;
    *message.mutable_log_chunk() = std::move(chunk);
    if (!must) return link_.TrySend(std::move(message));
    link_.Send(std::move(message));
    return true;
  }

  absl::StatusOr<LogServer::Log> FindLog(const v1::ReadNodeLog& request,
                                         const std::string& folder) {
    LogServer::Log log;
    if (const std::string& id = request.job_id(); !id.empty()) {
      log.paths = {{0, jobs_->LogPath(id)}};
      log.lives = [this, id] { return jobs_->Lives(id); };
      return log;
    }
    const std::string& id = request.actor_id();
    log.paths = FindActorLogs(folder, id);
    log.lives = [this, id] { return actors_->Lives(id); };
    // Who follows waits for the first, or the next.
    const bool waits = request.follow() && log.lives();
    if (log.paths.empty() && !waits && request.min_incarnation() == 0) {
      return absl::NotFoundError(absl::StrCat(
          "there is no log of actor ", id, " on its node",
          log.lives() ? " yet: it is being started" : " any more"));
    }
    return log;
  }

  void CutOff(const std::string& why) {
    if (actors_->empty() && jobs_->empty()) return;
    LOG(ERROR) << why << ": the actors of this node are stopped";
    GiveUp("its node had " + why);
  }

  // The head restarted our actors elsewhere, or will: ours must not go on.
  void GiveUp(const std::string& reason) {
    absl::MutexLock lock(&give_up_mu_);
    link_.FallSilent();
    // A job's driver first: it would only see its actors die.
    jobs_->GiveUp(reason);
    actors_->GiveUp(reason);
    link_.StartAnew();
  }

  const Options options_;
  const HostPort head_;
  const std::string node_ip_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Head::Stub> stub_;
  PackageCache packages_;
  HeadLink link_;
  std::unique_ptr<ObjectStore> objects_;
  std::unique_ptr<OutputCapture> capture_;
  std::unique_ptr<ProcessSupervisor> supervisor_;
  std::unique_ptr<TemplatePool> templates_;
  OomKills oom_kills_;
  UsageMeter usage_;  // For the memory monitor's thread.
  const GpuMeter gpu_meter_;
  MetricTotals metrics_;
  std::unique_ptr<ActorTable> actors_;
  std::unique_ptr<JobTable> jobs_;
  std::unique_ptr<LogServer> logs_;
  std::unique_ptr<LogJanitor> janitor_;
  std::unique_ptr<HeadWatch> watch_;
  std::unique_ptr<LeaseKeeper> lease_;
  std::unique_ptr<MemoryMonitor> memory_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::string metrics_address_;  // Set before the link starts.

  mutable absl::Mutex shutdown_mu_;
  absl::Mutex give_up_mu_;  // The link and the watch may both come to it.
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerDaemon>> WorkerDaemon::Start(
    Options options) {
  MR_ASSIGN_OR_RETURN(const HostPort head, ParseHostPort(options.head_address));
  MR_RETURN_IF_ERROR(CheckTokenText(options.token, "the cluster's token"));
  std::string node_ip = options.node_ip;
  if (node_ip.empty()) {
    MR_ASSIGN_OR_RETURN(node_ip, LocalAddressTowards(head));
  }
  // What runs here asks its callers for the same token.
  if (options.token.empty() && !IsLoopback(node_ip)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a node that listens on ", node_ip,
        ", which other machines may reach, needs a token: set MINIRAY_TOKEN to "
        "the cluster's, or give --token_file; a head on loopback has one if it "
        "is started with either"));
  }
  auto daemon =
      std::make_unique<WorkerDaemonImpl>(std::move(options), head, node_ip);
  MR_RETURN_IF_ERROR(daemon->Begin());
  return daemon;
}

}  // namespace miniray
