// Words for a tensor in an error message.

#ifndef MINIRAY_ML_DATA_DESCRIBE_TENSOR_H_
#define MINIRAY_ML_DATA_DESCRIBE_TENSOR_H_

#include <string>

#include "ATen/core/Tensor.h"

namespace miniray::ml {

// Returns dtype and sizes and, where they are not the usual ones, device and
// layout: "Byte [60000, 28, 28]", "Float [3] on cuda:0", "an undefined tensor".
std::string DescribeTensor(const at::Tensor& tensor);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_DESCRIBE_TENSOR_H_
