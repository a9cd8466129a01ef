// What a plug-in (--plugin lib.so) was built for. Every file that includes
// runtime/api/miniray.h carries the text, and a program refuses a plug-in whose
// text differs from its own before it runs any code of it.

#ifndef MINIRAY_RUNTIME_BASE_PLUGIN_ABI_H_
#define MINIRAY_RUNTIME_BASE_PLUGIN_ABI_H_

#include <string>  // For the library's own macros.

#include "absl/base/config.h"
#include "google/protobuf/stubs/common.h"
#include "runtime/base/version.h"

#define MINIRAY_TEXT_(macro) MINIRAY_TEXT_OF_(macro)
#define MINIRAY_TEXT_OF_(text) #text

#if defined(__SANITIZE_ADDRESS__)
#define MINIRAY_ABI_SANITIZER_ ", address sanitizer"
#elif defined(__SANITIZE_THREAD__)
#define MINIRAY_ABI_SANITIZER_ ", thread sanitizer"
#else
#define MINIRAY_ABI_SANITIZER_ ""
#endif

// Begins and ends the text in a file.
#define MINIRAY_ABI_BEGIN_ "<miniray-plugin-abi:"
#define MINIRAY_ABI_END_ ">"

#define MINIRAY_ABI_ \
  "miniray " MINIRAY_VERSION                                               \
  ", C++ ABI " MINIRAY_TEXT_(__GXX_ABI_VERSION) "/" MINIRAY_TEXT_(         \
      _GLIBCXX_USE_CXX11_ABI) ", protobuf " MINIRAY_TEXT_(                 \
      GOOGLE_PROTOBUF_VERSION) ", abseil " MINIRAY_TEXT_(                  \
      ABSL_LTS_RELEASE_VERSION) MINIRAY_ABI_SANITIZER_

namespace miniray {
namespace internal {

[[gnu::used, gnu::retain]] static const char kPluginAbi[] =
    MINIRAY_ABI_BEGIN_ MINIRAY_ABI_ MINIRAY_ABI_END_;

}  // namespace internal
}  // namespace miniray

#endif  // MINIRAY_RUNTIME_BASE_PLUGIN_ABI_H_
