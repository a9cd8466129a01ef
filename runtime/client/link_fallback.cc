#include "runtime/client/link_fallback.h"

#include "absl/strings/str_cat.h"

namespace miniray {
namespace internal {

bool LinkFallback::Avoids(const std::string& address, absl::Time now) const {
  return address == address_ && (no_session_ || now < rest_end_);
}

void LinkFallback::OnNoSession(const std::string& address,
                               const absl::Status& why) {
  SetAddress(address);
  no_session_ = true;
  reason_ = why;
}

void LinkFallback::OnGrpcFailed() {
  no_session_ = false;
  rest_end_ = absl::InfinitePast();
}

void LinkFallback::OnSession(absl::Time now) {
  no_session_ = false;
  session_at_ = now;
  replied_ = false;
}

void LinkFallback::OnReply() {
  replied_ = true;
  useless_ = 0;
}

void LinkFallback::OnBroken(const std::string& address, absl::Time now,
                            const absl::Status& why) {
  SetAddress(address);
  if (replied_) return;
  if (now - session_at_ >= kShort) {
    useless_ = 0;
    return;
  }
  // Not counted from the beginning after a rest: the first that is of no use
  // then is enough.
  if (++useless_ < kMaxUseless) return;
  rest_end_ = now + kRest;
  reason_ = absl::UnavailableError(
      absl::StrCat(useless_,
                   " links in a row broke before a reply came, the "
                   "last one: ",
                   why.message()));
}

void LinkFallback::SetAddress(const std::string& address) {
  if (address == address_) return;
  address_ = address;
  no_session_ = false;
  useless_ = 0;
  rest_end_ = absl::InfinitePast();
}

}  // namespace internal
}  // namespace miniray
