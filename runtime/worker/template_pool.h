// The template processes of a node, from which actor processes are forked: see
// runtime/actor/template.h. One for each package and set of plug-ins that is in
// use, and at most a few.

#ifndef MINIRAY_RUNTIME_WORKER_TEMPLATE_POOL_H_
#define MINIRAY_RUNTIME_WORKER_TEMPLATE_POOL_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/worker.pb.h"
#include "runtime/worker/output_capture.h"
#include "runtime/worker/process_supervisor.h"

namespace miniray {

// Thread-safe.
class TemplatePool {
 public:
  struct Options {
    std::string log_folder;
    int max_templates = 4;
    // Programs that were found unfit are remembered, the last ones.
    size_t max_unfit = 64;
  };
  // What is loaded.
  struct Program {
    std::string key;  // Names package and plug-ins.
    std::string executable;
    std::string name;  // argv[0]
    // On top of the daemon's own; the same for all processes of a program.
    std::map<std::string, std::string> env;
    std::shared_ptr<const void> files;  // What must not be removed meanwhile.
  };

  // Both outlive the pool.
  TemplatePool(Options options, ProcessSupervisor* supervisor,
               OutputCapture* capture);

  // Forks a process from the program's template, which is started if there is
  // none; blocks. It gets `env` on top of the template's, and becomes a child
  // of this process that leads a process group. Errors: UNAVAILABLE, there can
  // be no template of that program: run it. FAILED_PRECONDITION, it cannot run
  // here in any way. CANCELLED, closed.
  absl::StatusOr<pid_t> Fork(const Program& program,
                             const std::map<std::string, std::string>& env,
                             int socket, int output);

  // Whoever waits is told; nothing is forked any more.
  void Close();

 private:
  enum class State { kStarting, kReady, kUnfit, kGone };
  struct Template {
    std::string key;  // Of its process.
    State state = State::kStarting;
    absl::Status status;  // Of one that is unfit.
    absl::Time last_use;
    std::map<uint64_t, v1::ForkedActor> answers;
  };

  // The template of a program, ready or unfit.
  absl::StatusOr<std::shared_ptr<Template>> Get(const Program& program);
  absl::Status StartTemplate(const Program& program,
                             const std::shared_ptr<Template>& entry);
  void MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnMessage(const std::shared_ptr<Template>& entry,
                 const std::string& message);
  void OnExit(const std::shared_ptr<Template>& entry);

  const Options options_;
  ProcessSupervisor* const supervisor_;
  OutputCapture* const capture_;

  // The supervisor's lock may be taken while it is held.
  absl::Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<std::string, std::shared_ptr<Template>> templates_
      ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WORKER_TEMPLATE_POOL_H_
