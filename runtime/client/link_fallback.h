// Whether a caller tries a link to its actor or goes through gRPC at once: what
// lies between two machines may let only HTTP/2 through, at all or for long.

#ifndef MINIRAY_RUNTIME_CLIENT_LINK_FALLBACK_H_
#define MINIRAY_RUNTIME_CLIENT_LINK_FALLBACK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace miniray {
namespace internal {

// Of one caller. Not thread-safe.
class LinkFallback {
 public:
  // A link that broke within this time of its session, and had brought no reply
  // to the calls that waited, was of no use. It is longer than the 20 s after
  // which a silent link is given up.
  static constexpr absl::Duration kShort = absl::Seconds(30);
  // So many of them in a row, and calls go through gRPC for a while.
  static constexpr int kMaxUseless = 3;
  static constexpr absl::Duration kRest = absl::Minutes(1);

  // No link is tried to the actor at `address` now.
  bool Avoids(const std::string& address, absl::Time now) const;
  // Why not.
  const absl::Status& reason() const { return reason_; }

  // A link ended before a session was there. The next stream is one of gRPC.
  void OnNoSession(const std::string& address, const absl::Status& why);
  // gRPC led to no session either: the link was not at fault.
  void OnGrpcFailed();
  // A session is there, through a link or not. Once it breaks a link is tried,
  // unless links rest.
  void OnSession(absl::Time now);
  // A reply came through a link.
  void OnReply();
  // A link to `address` broke after its session, and calls waited.
  void OnBroken(const std::string& address, absl::Time now,
                const absl::Status& why);

 private:
  void SetAddress(const std::string& address);

  std::string address_;  // What the rest is about.
  absl::Status reason_;
  bool no_session_ = false;
  int useless_ = 0;  // Links in a row.
  absl::Time rest_end_ = absl::InfinitePast();
  absl::Time session_at_ = absl::InfinitePast();
  bool replied_ = false;  // Since then.
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_CLIENT_LINK_FALLBACK_H_
