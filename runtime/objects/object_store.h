// The object store of a node: values that were put once and are used by many
// actors. Each lies in a memfd, so that nothing is left behind whoever dies,
// and the node's processes map it instead of receiving it. What has no room in
// memory goes to disk; what several nodes want goes from one to the next. See
// proto/object.proto.

#ifndef MINIRAY_RUNTIME_OBJECTS_OBJECT_STORE_H_
#define MINIRAY_RUNTIME_OBJECTS_OBJECT_STORE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace miniray {

// Thread-safe.
class ObjectStore {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // Serves at HOST:0.
    std::string token;
    // In memory, of all objects together; 0: 30 % of the memory of
    // the machine, or of the control group where that has a limit.
    int64_t max_bytes = 0;
    // Where objects go for which there is no memory; created if missing. Empty:
    // they are refused.
    std::string spill_folder;
    // Stores that one object is sent to at once; others get it from those.
    int max_children = 1;
    // A peer that sends nothing for so long is given up for the source.
    absl::Duration peer_patience = absl::Seconds(5);
    // Between two looks at whether copies still have their objects. A store
    // that was silent for 20 such looks of another one holds nothing there.
    absl::Duration check_period = absl::Seconds(15);
  };
  struct Stats {
    int64_t objects = 0;
    int64_t bytes = 0;  // In memory.
    int64_t spilled_objects = 0;
    int64_t spilled_bytes = 0;  // On disk; what was read back is on both.
    int64_t fetched = 0;  // Brought here from other stores, since the start.
    int64_t served = 0;   // Sent to other stores and drivers.
    // Bytes since the start: put by processes of this machine in memory, which
    // the store took over, or in messages; brought from other stores; found for
    // processes that map them, once each time; sent to other stores and
    // drivers.
    int64_t adopted_bytes = 0;
    int64_t put_bytes = 0;
    int64_t fetched_bytes = 0;
    int64_t mapped_bytes = 0;
    int64_t sent_bytes = 0;
  };

  // Errors: those of GrpcListener and of the spill folder.
  static absl::StatusOr<std::unique_ptr<ObjectStore>> Start(Options options);

  virtual ~ObjectStore() = default;

  virtual const std::string& address() const = 0;  // HOST:PORT

  // The job holds nothing any more, and frees what nobody else holds; what it
  // still puts is refused, until another job of the same id begins.
  virtual void EndJob(absl::string_view job_id) = 0;
  virtual void BeginJob(absl::string_view job_id) = 0;
  // The ids of those that hold objects here, or from here.
  virtual std::set<std::string> Jobs() const = 0;
  // The same for a process. owner: as in v1.ObjectHolder.
  virtual void EndOwner(absl::string_view owner) = 0;

  virtual Stats stats() const = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_OBJECT_STORE_H_
