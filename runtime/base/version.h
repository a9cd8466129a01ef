// The version of this runtime, as `miniray --version` and the head report it.

#ifndef MINIRAY_RUNTIME_BASE_VERSION_H_
#define MINIRAY_RUNTIME_BASE_VERSION_H_

#define MINIRAY_VERSION "0.3.0"

namespace miniray {

inline constexpr char kVersion[] = MINIRAY_VERSION;

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_VERSION_H_
