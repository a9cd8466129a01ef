#include "ml/data/describe_tensor.h"

#include <sstream>

namespace miniray::ml {

std::string DescribeTensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream out;
  out << tensor.scalar_type() << " " << tensor.sizes();
  if (!tensor.device().is_cpu()) out << " on " << tensor.device();
  if (!tensor.is_contiguous()) out << ", not contiguous";
  return out.str();
}

}  // namespace miniray::ml
