// How a decoder finds out that it may keep what it decodes.

#ifndef MINIRAY_RUNTIME_WIRE_ADOPTION_H_
#define MINIRAY_RUNTIME_WIRE_ADOPTION_H_

namespace miniray {
namespace internal {

// While it lives, the memory of the values that this thread decodes is nobody
// else's: a decoder may give it to the value as it is, for its owner to change.
class AdoptionScope {
 public:
  explicit AdoptionScope(bool active) : outer_(active_) { active_ = active; }
  ~AdoptionScope() { active_ = outer_; }
  AdoptionScope(const AdoptionScope&) = delete;
  AdoptionScope& operator=(const AdoptionScope&) = delete;
  static bool Active() { return active_; }

 private:
  static inline constinit thread_local bool active_ = false;
  const bool outer_;
};

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_WIRE_ADOPTION_H_
