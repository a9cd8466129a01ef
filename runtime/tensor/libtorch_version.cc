// What a program that links LibTorch tells whoever does not include its
// headers; see runtime/actor/plugins.cc.

#include "torch/version.h"

extern "C" const char* MinirayLibTorchVersion();

extern "C" const char* MinirayLibTorchVersion() { return TORCH_VERSION; }
