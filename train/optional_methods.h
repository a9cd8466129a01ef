// What a worker class may have besides what it must (worker_contract.h),
// checked by the compiler:
//
//   // For Evaluate and evaluate_every: evaluates the model as it is on part
//   // `shard` of num_shards of the test data, and returns means over its
//   // samples, with their number as "samples"; it may be 0.
//   train::Metrics EvaluateShard(int shard, int num_shards);
//   // ... or EvaluateShard(int, int, const train::Config& config);
//
//   // For sync_every: trains on batches [first, first + count) of the epoch,
//   // fewer where it ends, and returns means over their samples, with their
//   // number as "samples" and that of the batches as "steps", 0 to count.
//   train::Metrics TrainSteps(int epoch, int64_t first, int64_t count);
//
//   // For WorkerProgress: how far the epoch is. Runs in a thread of its own
//   // beside the other methods, so it must bear that; EpochMeter and
//   // TrainLoop::Now do.
//   train::Progress GetProgress() const;
//
// absl::StatusOr of the results serves too.

#ifndef MINIRAY_TRAIN_OPTIONAL_METHODS_H_
#define MINIRAY_TRAIN_OPTIONAL_METHODS_H_

#include <tuple>
#include <type_traits>

#include "train/epoch_meter.h"
#include "train/worker_contract.h"

namespace miniray::train::internal {

template <class Arguments>
inline constexpr bool kThreeIntegers = false;
template <class A, class B, class C>
inline constexpr bool kThreeIntegers<std::tuple<A, B, C>> =
    std::is_integral_v<A>&& std::is_integral_v<B>&& std::is_integral_v<C>;

// True if the class has any member function of the name.
template <class W>
concept NamesEvaluateShard = requires {
  &W::EvaluateShard;
};
template <class W>
concept NamesTrainSteps = requires {
  &W::TrainSteps;
};

template <class W>
concept HasConfigEvaluateShard = miniray::internal::IsActor<W> &&
    Listed<W, &W::EvaluateShard>() &&
    std::is_same_v<ResultOf<&W::EvaluateShard>, Metrics> &&
    kTwoIntegersAndConfig<ArgumentsOf<&W::EvaluateShard>>;

template <class W>
concept HasEvaluateShard = HasConfigEvaluateShard<W> ||
    (miniray::internal::IsActor<W>&& Listed<W, &W::EvaluateShard>() &&
     std::is_same_v<ResultOf<&W::EvaluateShard>, Metrics> &&
     kTwoIntegers<ArgumentsOf<&W::EvaluateShard>>);

template <class W>
concept HasTrainSteps = miniray::internal::IsActor<W> &&
    Listed<W, &W::TrainSteps>() &&
    std::is_same_v<ResultOf<&W::TrainSteps>, Metrics> &&
    kThreeIntegers<ArgumentsOf<&W::TrainSteps>>;

template <class W>
concept HasProgress = miniray::internal::IsActor<W> &&
    Listed<W, &W::GetProgress>() &&
    std::is_same_v<ResultOf<&W::GetProgress>, Progress> &&
    std::is_same_v<ArgumentsOf<&W::GetProgress>, std::tuple<>>;

template <class W>
concept EvaluateShardIsFine = !NamesEvaluateShard<W> || HasEvaluateShard<W>;
template <class W>
concept TrainStepsIsFine = !NamesTrainSteps<W> || HasTrainSteps<W>;

// Says what is wrong with a method that a class has.
template <class W>
struct RequireOptionalMethods {
  static_assert(!miniray::internal::IsActor<W> || EvaluateShardIsFine<W>,
                "the worker class's EvaluateShard must be `train::Metrics "
                "EvaluateShard(int shard, int num_shards)`, with or without a "
                "`const train::Config&` after that (absl::StatusOr of it "
                "serves too), and listed in its MINIRAY_ACTOR");
  static_assert(!miniray::internal::IsActor<W> || TrainStepsIsFine<W>,
                "the worker class's TrainSteps must be `train::Metrics "
                "TrainSteps(int epoch, int64_t first, int64_t count)` (or "
                "absl::StatusOr of it), and listed in its MINIRAY_ACTOR");
  static constexpr bool value = true;
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_OPTIONAL_METHODS_H_
