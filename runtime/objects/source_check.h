// What a store asks the sources of its copies, and of what it holds, now and
// then.

#ifndef MINIRAY_RUNTIME_OBJECTS_SOURCE_CHECK_H_
#define MINIRAY_RUNTIME_OBJECTS_SOURCE_CHECK_H_

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "runtime/objects/object_copier.h"
#include "runtime/objects/object_holds.h"
#include "runtime/objects/object_table.h"

namespace miniray {

// For one thread.
class SourceCheck {
 public:
  // All outlive it.
  SourceCheck(ObjectCopier* copier, ObjectTable* table, ObjectHolds* holds)
      : copier_(copier), table_(table), holds_(holds) {}

  // Frees the copies whose objects are no more, and goes on holding what is
  // held elsewhere. A source that has been silent for long counts as gone.
  // Blocks until each has answered, or has not.
  void Run() ABSL_LOCKS_EXCLUDED(mu_);

 private:
  struct Question {
    std::string source;
    std::vector<std::string> copies;
    std::vector<ObjectClaim> held;
  };
  void Ask(const Question& question) ABSL_LOCKS_EXCLUDED(mu_);

  ObjectCopier* const copier_;
  ObjectTable* const table_;
  ObjectHolds* const holds_;
  absl::Mutex mu_;
  std::map<std::string, int> silences_ ABSL_GUARDED_BY(mu_);
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_OBJECTS_SOURCE_CHECK_H_
