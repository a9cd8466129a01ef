// A TCP connection of which it is not known yet whether it is a link or speaks
// gRPC: its first bytes tell.

#ifndef MINIRAY_RUNTIME_ACTOR_NEWCOMER_H_
#define MINIRAY_RUNTIME_ACTOR_NEWCOMER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/strings/string_view.h"
#include "runtime/base/files.h"
#include "runtime/link/link_loop.h"

namespace miniray {
namespace internal {

// All methods belong to the loop's thread.
class Newcomer : public LinkLoopUser,
                 public std::enable_shared_from_this<Newcomer> {
 public:
  enum class Speaks { kLink, kGrpc };
  // Takes it over. kLink: the preface has been read; kGrpc: nothing has.
  using OnKnown = std::function<void(ScopedFd fd, Speaks speaks)>;

  Newcomer(ScopedFd fd, LinkLoop* loop, OnKnown on_known);

  // The loop keeps it until it is known, has closed its end, or has said too
  // little for too long.
  void Start();

  // A line in the log. REQUIRES: waiting().
  void Refuse(absl::string_view why) const;

  // Closes it, unless it is known.
  void TurnAway();

  bool waiting() const { return fd_.valid(); }

  // LinkLoopUser.
  void OnEvents(uint32_t events) override;
  void OnTick() override;

 private:
  const OnKnown on_known_;
  LinkLoop& loop_;
  ScopedFd fd_;
  int ticks_ = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_NEWCOMER_H_
