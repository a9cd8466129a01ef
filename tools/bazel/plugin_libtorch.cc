// In every plug-in (mr_cc_plugin): the LibTorch whose headers it was compiled
// against, if any. A program with another one refuses it
// (runtime/actor/plugins.cc).

#if __has_include("torch/version.h")

#include "torch/version.h"

namespace {

[[gnu::used, gnu::retain]] const char kPluginLibTorch[] =
    "<miniray-plugin-libtorch:" TORCH_VERSION ">";

}  // namespace

#endif
