// How long a verb waits for a head that does not answer: one outage has one
// limit, whatever the verb asks for meanwhile.

#ifndef MINIRAY_TOOLS_CLI_PATIENCE_H_
#define MINIRAY_TOOLS_CLI_PATIENCE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace miniray::cli {

// Of --head_patience. Errors: INVALID_ARGUMENT.
absl::StatusOr<absl::Duration> ReadHeadPatience();

// Not thread-safe.
class Patience {
 public:
  struct Options {
    std::string address;  // Of the head.
    absl::Duration limit = absl::Seconds(60);
    // Whether the head was stopped in good order, as far as that can be seen.
    std::function<bool()> stopped;
    // Shows a line to the user.
    std::function<void(absl::string_view)> say;
    std::function<absl::Time()> clock = &absl::Now;
  };

  explicit Patience(Options options);

  // The head has answered: no outage, or the end of one.
  void Answered();
  bool has_answered() const { return has_answered_; }
  // Whether Failed said so.
  bool gave_up() const { return gave_up_ || head_stopped_; }
  bool head_stopped() const { return head_stopped_; }

  // A call to the head came to `status`. OK: nobody answered, ask again in a
  // moment. Says so at once when an outage begins. Errors: what to give up
  // with: FAILED_PRECONDITION, the head was stopped in good order, and its
  // cluster with it; UNAVAILABLE, the outage is longer than the limit; else
  // `status`, which is the head's own word.
  absl::Status Failed(const absl::Status& status);

 private:
  const Options options_;
  bool has_answered_ = false;
  bool gave_up_ = false;
  bool head_stopped_ = false;
  std::optional<absl::Time> silent_since_;
};

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_PATIENCE_H_
