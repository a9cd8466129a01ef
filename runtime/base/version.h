// The version of this runtime, as `miniray --version` and the head report it.
// Processes whose versions differ in more than the last number refuse each
// other at connect (rpc/channel.h), so whoever changes a message that is on its
// way between processes raises one of the first two.

#ifndef MINIRAY_RUNTIME_BASE_VERSION_H_
#define MINIRAY_RUNTIME_BASE_VERSION_H_

#define MINIRAY_VERSION "0.4.0"

namespace miniray {

inline constexpr char kVersion[] = MINIRAY_VERSION;

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_VERSION_H_
