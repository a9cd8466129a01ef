// All that a program with a train function includes. Needs LibTorch's front
// end and data headers, which are slow to compile.

#ifndef MINIRAY_TRAIN_FUNCTIONS_TRAIN_FUNCTIONS_H_
#define MINIRAY_TRAIN_FUNCTIONS_TRAIN_FUNCTIONS_H_

// IWYU pragma: begin_exports
#include "train/data/dataset.h"
#include "train/functions/model_state.h"
#include "train/functions/prepare_data_loader.h"
#include "train/functions/prepare_model.h"
#include "train/functions/torch_trainer.h"
#include "train/gradient_clipping.h"
#include "train/loss_scaler.h"
#include "train/mixed_precision.h"
// IWYU pragma: end_exports

#endif  // MINIRAY_TRAIN_FUNCTIONS_TRAIN_FUNCTIONS_H_
