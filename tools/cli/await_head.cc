#include "tools/cli/await_head.h"

#include <iostream>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "runtime/base/process_records.h"
#include "runtime/base/status_macros.h"
#include "runtime/head/state_folder.h"

namespace miniray::cli {

Patience PatienceWith(const HeadClient& head, absl::Duration limit) {
  return Patience({.address = head.address(),
                   .limit = limit,
                   .stopped =
                       [state_dir = StateDirFor(head.address())] {
                         // A head that is killed leaves something to go on
                         // with.
                         return state_dir.has_value() &&
                                absl::IsNotFound(
                                    StateFolder::Recall(*state_dir).status());
                       },
                   .say =
                       [](absl::string_view text) {
                         std::cerr << "miniray: " << text << std::endl;
                       }});
}

absl::Status AwaitHead(const absl::Status& status, Patience* patience,
                       Cancellation* cancellation) {
  MR_RETURN_IF_ERROR(patience->Failed(status));
  return cancellation->Sleep(kRetryPeriod) ? absl::CancelledError("stopped")
                                           : absl::OkStatus();
}

}  // namespace miniray::cli
