// Where Debian's package dataset-fashion-mnist puts its files.

#ifndef MINIRAY_ML_DATA_FASHION_MNIST_FOLDER_H_
#define MINIRAY_ML_DATA_FASHION_MNIST_FOLDER_H_

namespace miniray::ml {

inline constexpr char kFashionMnistFolder[] =
    "/usr/share/datasets/fashion-mnist";

}  // namespace miniray::ml

#endif  // MINIRAY_ML_DATA_FASHION_MNIST_FOLDER_H_
