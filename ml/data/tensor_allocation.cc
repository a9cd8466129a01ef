#include "ml/data/tensor_allocation.h"

#include <exception>

#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace miniray::ml {

absl::StatusOr<at::Tensor> AllocateBytes(int64_t size, absl::string_view what) {
  try {
    return at::empty({size}, at::kByte);
  } catch (const std::exception&) {  // c10::Error, or bad_alloc.
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", size, " bytes of ", what));
  }
}

}  // namespace miniray::ml
