// The object store of a node: values that were put once and are used by many
// actors. Each lies in a memfd, so that nothing is left behind whoever dies,
// and the node's actors map it instead of receiving it. See
// proto/object.proto.

#ifndef MINIRAY_RUNTIME_OBJECTS_OBJECT_STORE_H_
#define MINIRAY_RUNTIME_OBJECTS_OBJECT_STORE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace miniray {

// Thread-safe.
class ObjectStore {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // Serves at HOST:0.
    std::string token;
    // Of all objects together; 0: 30 % of the machine's (or the container's)
    // memory.
    int64_t max_bytes = 0;
  };
  struct Stats {
    int64_t objects = 0;
    int64_t bytes = 0;
    int64_t fetched = 0;  // Brought here from other stores, since the start.
    int64_t served = 0;   // Sent to other stores and drivers.
  };

  // Errors: UNAVAILABLE, cannot listen.
  static absl::StatusOr<std::unique_ptr<ObjectStore>> Start(Options options);

  virtual ~ObjectStore() = default;

  virtual const std::string& address() const = 0;  // HOST:PORT

  // Frees what the job has put, and refuses what it still puts.
  virtual void EndJob(absl::string_view job_id) = 0;

  virtual Stats stats() const = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_OBJECT_STORE_H_
