// The machines of a chaos run and the links between them.

#ifndef MINIRAY_TOOLS_HAVOC_NETWORK_H_
#define MINIRAY_TOOLS_HAVOC_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace miniray::havoc {

// Machines are numbered: the head, the driver, then the nodes.
inline constexpr int kHeadMachine = 0;
inline constexpr int kDriverMachine = 1;
inline constexpr int kFirstNodeMachine = 2;

// Not thread-safe.
class Network {
 public:
  enum class Kind {
    kAuto,        // Namespaces if this user may make them.
    kNamespaces,  // Each machine is a network namespace; a router joins them.
    kLoopback,    // All machines are this one; no link can be cut.
  };

  // Removes as well what is left of runs that were killed. Errors:
  // PERMISSION_DENIED, this user may not make namespaces.
  static absl::StatusOr<std::unique_ptr<Network>> Create(Kind kind,
                                                         int machines);

  // Removes the namespaces.
  virtual ~Network() = default;

  virtual std::string Describe() const = 0;
  virtual bool can_cut() const = 0;
  virtual std::string Ip(int machine) const = 0;
  // Puts the calling thread, and what it starts from now on, onto the machine;
  // only system calls, so that a forked child may use it. False: errno says
  // why.
  virtual bool Enter(int machine) const = 0;

  // From now on no packet passes between the two, in either direction; nobody
  // is told.
  virtual absl::Status Cut(int a, int b) = 0;
  virtual absl::Status Heal(int a, int b) = 0;

  // From now on no machine sends or receives more bits per second than that.
  // Errors: INTERNAL, the kernel cannot (tbf).
  virtual absl::Status LimitRate(int64_t bits_per_second) = 0;

  // Removes everything. Errors: INTERNAL, something is left.
  virtual absl::Status Remove() = 0;
};

}  // namespace miniray::havoc

#endif  // MINIRAY_TOOLS_HAVOC_NETWORK_H_
