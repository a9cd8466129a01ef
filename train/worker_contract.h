// What a class must have to be a worker of a DataParallelTrainer, checked by
// the compiler:
//
//   class MyWorker {
//    public:
//     train::Metrics TrainEpoch(int epoch);
//     NamedTensors GetWeights();
//     void SetWeights(NamedTensors weights);
//     // Optional: takes its part of the data, before the first epoch.
//     void LoadDataShard(int shard_id, int num_shards);
//     // ... or void LoadDataShard(int, int, const train::Config& config);
//     // Optional, both or neither: for checkpoints (training_state.h makes the
//     // bytes of models and optimizers).
//     train::CheckpointFiles SaveCheckpoint();
//     void LoadCheckpoint(const train::CheckpointFiles& files);
//   };
//   MINIRAY_ACTOR(MyWorker, Constructor<...>, &MyWorker::TrainEpoch,
//                 &MyWorker::GetWeights, &MyWorker::SetWeights,
//                 &MyWorker::LoadDataShard);
//
// absl::StatusOr of the results, and absl::Status instead of void, serve too.
// The parameter server calls more methods where there are any: LendWeights,
// NumSamples, BufferNames (ps/parameter_server.h); the trainer those of
// optional_methods.h.

#ifndef MINIRAY_TRAIN_WORKER_CONTRACT_H_
#define MINIRAY_TRAIN_WORKER_CONTRACT_H_

#include <tuple>
#include <type_traits>

#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"
#include "train/checkpoint.h"
#include "train/metrics.h"
#include "train/options.h"

namespace miniray::train {
namespace internal {

template <class Worker, auto Method>
consteval bool Listed() {
  using Definition =
      decltype(MinirayActor(static_cast<const Worker*>(nullptr)));
  return Definition::template Has<Method>();
}

template <auto Method>
using ArgumentsOf =
    typename miniray::internal::MethodTraits<decltype(Method)>::Arguments;

template <auto Method>
using ResultOf = typename miniray::internal::ResultOf<
    typename miniray::internal::MethodTraits<decltype(Method)>::Result>::type;

template <class Arguments>
inline constexpr bool kOneInteger = false;
template <class A>
inline constexpr bool kOneInteger<std::tuple<A>> = std::is_integral_v<A>;

template <class Arguments>
inline constexpr bool kTwoIntegers = false;
template <class A, class B>
inline constexpr bool kTwoIntegers<std::tuple<A, B>> =
    std::is_integral_v<A>&& std::is_integral_v<B>;

template <class Arguments>
inline constexpr bool kTwoIntegersAndConfig = false;
template <class A, class B>
inline constexpr bool kTwoIntegersAndConfig<std::tuple<A, B, Config>> =
    std::is_integral_v<A>&& std::is_integral_v<B>;

template <class W>
concept HasTrainEpoch = miniray::internal::IsActor<W> &&
    Listed<W, &W::TrainEpoch>() &&
    std::is_same_v<ResultOf<&W::TrainEpoch>, Metrics> &&
    kOneInteger<ArgumentsOf<&W::TrainEpoch>>;

template <class W>
concept HasGetWeights = miniray::internal::IsActor<W> &&
    Listed<W, &W::GetWeights>() &&
    std::is_same_v<ResultOf<&W::GetWeights>, NamedTensors> &&
    std::is_same_v<ArgumentsOf<&W::GetWeights>, std::tuple<>>;

template <class W>
concept HasSetWeights = miniray::internal::IsActor<W> &&
    Listed<W, &W::SetWeights>() && std::is_void_v<ResultOf<&W::SetWeights>> &&
    (std::is_same_v<ArgumentsOf<&W::SetWeights>, std::tuple<NamedTensors>> ||
     std::is_same_v<ArgumentsOf<&W::SetWeights>,
                    std::tuple<ReadOnly<NamedTensors>>>);

// True if the class has any member function of the name.
template <class W>
concept NamesLoadDataShard = requires {
  &W::LoadDataShard;
};

template <class W>
concept HasPlainLoadDataShard = miniray::internal::IsActor<W> &&
    Listed<W, &W::LoadDataShard>() &&
    std::is_void_v<ResultOf<&W::LoadDataShard>> &&
    kTwoIntegers<ArgumentsOf<&W::LoadDataShard>>;

template <class W>
concept HasConfigLoadDataShard = miniray::internal::IsActor<W> &&
    Listed<W, &W::LoadDataShard>() &&
    std::is_void_v<ResultOf<&W::LoadDataShard>> &&
    kTwoIntegersAndConfig<ArgumentsOf<&W::LoadDataShard>>;

template <class W>
concept LoadDataShardIsFine =
    !NamesLoadDataShard<W> || HasPlainLoadDataShard<W> ||
    HasConfigLoadDataShard<W>;

template <class W>
concept NamesCheckpoint = requires {
  &W::SaveCheckpoint;
}
|| requires { &W::LoadCheckpoint; };

template <class W>
concept HasCheckpoint = miniray::internal::IsActor<W> &&
    Listed<W, &W::SaveCheckpoint>() && Listed<W, &W::LoadCheckpoint>() &&
    std::is_same_v<ResultOf<&W::SaveCheckpoint>, CheckpointFiles> &&
    std::is_same_v<ArgumentsOf<&W::SaveCheckpoint>, std::tuple<>> &&
    std::is_void_v<ResultOf<&W::LoadCheckpoint>> && std::is_same_v<
        ArgumentsOf<&W::LoadCheckpoint>, std::tuple<CheckpointFiles>>;

template <class W>
concept CheckpointIsFine = !NamesCheckpoint<W> || HasCheckpoint<W>;

// How a class takes its shard.
enum class ShardCall { kNone, kPlain, kWithConfig };

template <class W>
consteval ShardCall ShardCallOf() {
  if (HasConfigLoadDataShard<W>) return ShardCall::kWithConfig;
  return HasPlainLoadDataShard<W> ? ShardCall::kPlain : ShardCall::kNone;
}

}  // namespace internal

// A worker of a DataParallelTrainer.
template <class W>
concept TrainWorker = internal::HasTrainEpoch<W> &&
    internal::HasGetWeights<W> && internal::HasSetWeights<W> &&
    internal::LoadDataShardIsFine<W> && internal::CheckpointIsFine<W>;

namespace internal {

// Says what a class lacks.
template <class W>
struct RequireTrainWorker {
  static_assert(miniray::internal::IsActor<W>,
                "the worker class is no actor class here: MINIRAY_ACTOR(...) "
                "must stand above the trainer");
  static_assert(!miniray::internal::IsActor<W> || HasTrainEpoch<W>,
                "the worker class needs `train::Metrics TrainEpoch(int epoch)` "
                "(or absl::StatusOr of it), listed in its MINIRAY_ACTOR");
  static_assert(!miniray::internal::IsActor<W> || HasGetWeights<W>,
                "the worker class needs `NamedTensors GetWeights()` (or "
                "absl::StatusOr of it), listed in its MINIRAY_ACTOR");
  static_assert(!miniray::internal::IsActor<W> || HasSetWeights<W>,
                "the worker class needs `void SetWeights(NamedTensors)` (or "
                "absl::Status), listed in its MINIRAY_ACTOR");
  static_assert(!miniray::internal::IsActor<W> || LoadDataShardIsFine<W>,
                "the worker class's LoadDataShard must be `void "
                "LoadDataShard(int shard_id, int num_shards)`, with or without "
                "a `const train::Config&` after that (absl::Status serves "
                "too), and listed in its MINIRAY_ACTOR");
  static_assert(!miniray::internal::IsActor<W> || CheckpointIsFine<W>,
                "the worker class needs both `train::CheckpointFiles "
                "SaveCheckpoint()` (or absl::StatusOr of it) and `void "
                "LoadCheckpoint(const train::CheckpointFiles&)` (or "
                "absl::Status), listed in its MINIRAY_ACTOR, or neither");
  static constexpr bool value = true;
};

}  // namespace internal
}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_WORKER_CONTRACT_H_
