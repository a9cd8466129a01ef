// Waiting for a head that is away, in a verb that can be interrupted.

#ifndef MINIRAY_TOOLS_CLI_AWAIT_HEAD_H_
#define MINIRAY_TOOLS_CLI_AWAIT_HEAD_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/cli/cancellation.h"
#include "tools/cli/head_client.h"
#include "tools/cli/patience.h"

namespace miniray::cli {

// Between two questions to somebody who does not answer.
inline constexpr absl::Duration kRetryPeriod = absl::Milliseconds(500);

// Tells the user on stderr. Whether the head was stopped in good order shows in
// its state folder, where the head is on this machine: make it while the head
// still runs.
Patience PatienceWith(const HeadClient& head, absl::Duration limit);

// After a call that came to `status`: waits a moment. OK: ask again. Errors:
// those of Patience::Failed; CANCELLED.
absl::Status AwaitHead(const absl::Status& status, Patience* patience,
                       Cancellation* cancellation);

}  // namespace miniray::cli

#endif  // MINIRAY_TOOLS_CLI_AWAIT_HEAD_H_
