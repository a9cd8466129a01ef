// How many links one listening socket of an actor process may have. A link
// takes its place once its caller has shown the token: a stranger has none.

#ifndef MINIRAY_RUNTIME_ACTOR_LINK_PLACES_H_
#define MINIRAY_RUNTIME_ACTOR_LINK_PLACES_H_

#include <atomic>
#include <cstddef>

namespace miniray {
namespace internal {

// Thread-safe.
class LinkPlaces {
 public:
  explicit LinkPlaces(size_t count) : count_(count) {}

  // False: all are taken.
  bool Take() {
    if (taken_.fetch_add(1) < count_) return true;
    --taken_;
    return false;
  }
  void GiveBack() { --taken_; }
  bool full() const { return taken_ >= count_; }

 private:
  const size_t count_;
  std::atomic<size_t> taken_ = 0;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_ACTOR_LINK_PLACES_H_
