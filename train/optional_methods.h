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
//   // number as "samples" and that of the batches as "steps", 0 to count. One
//   // that accumulates gradients over several batches refuses a count that is
//   // no multiple of their number: each piece ends with a step.
//   train::Metrics TrainSteps(int epoch, int64_t first, int64_t count);
//
//   // For overlap_sync, both, and LendWeights; one line each around an
//   // OverlappedWeights (overlapped_weights.h). LendWeights and SetWeights,
//   // and NumSamples and BufferNames if there are any, then run in a thread of
//   // their own beside TrainSteps.
//   void SnapshotWeights();
//   void ApplyWeights(bool trained);
//
//   // What of the epoch is no number: called once it is trained, before the
//   // synchronisation; EpochResult::notes has it.
//   train::Notes GetNotes();
//
//   // For WorkerProgress: how far the epoch is. Runs in a thread of its own
//   // beside the other methods, so it must bear that; EpochMeter and
//   // TrainLoop::Now do.
//   train::Progress GetProgress() const;
//
// absl::StatusOr of the results, and absl::Status instead of void, serve too.

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
concept NamesGetNotes = requires {
  &W::GetNotes;
};

template <class W>
concept HasNotes = miniray::internal::IsActor<W> && Listed<W, &W::GetNotes>() &&
    std::is_same_v<ResultOf<&W::GetNotes>, Notes> &&
    std::is_same_v<ArgumentsOf<&W::GetNotes>, std::tuple<>>;

template <class W>
concept HasProgress = miniray::internal::IsActor<W> &&
    Listed<W, &W::GetProgress>() &&
    std::is_same_v<ResultOf<&W::GetProgress>, Progress> &&
    std::is_same_v<ArgumentsOf<&W::GetProgress>, std::tuple<>>;

template <class W>
concept HasLendWeights = miniray::internal::IsActor<W> &&
    Listed<W, &W::LendWeights>() &&
    std::is_same_v<ResultOf<&W::LendWeights>, ReadOnly<NamedTensors>> &&
    std::is_same_v<ArgumentsOf<&W::LendWeights>, std::tuple<>>;

template <class W>
concept NamesOverlap = requires {
  &W::SnapshotWeights;
}
|| requires { &W::ApplyWeights; };

template <class W>
concept HasOverlap = HasLendWeights<W> && Listed<W, &W::SnapshotWeights>() &&
    std::is_void_v<ResultOf<&W::SnapshotWeights>> &&
    std::is_same_v<ArgumentsOf<&W::SnapshotWeights>, std::tuple<>> && Listed<
        W, &W::ApplyWeights>() && std::is_void_v<ResultOf<&W::ApplyWeights>> &&
    std::is_same_v<ArgumentsOf<&W::ApplyWeights>, std::tuple<bool>>;

// Methods that the parameter server calls besides, where there are any.
template <class W>
concept HasNumSamples = miniray::internal::IsActor<W> &&
    Listed<W, &W::NumSamples>();
template <class W>
concept HasBufferNames = miniray::internal::IsActor<W> &&
    Listed<W, &W::BufferNames>();

template <class W>
concept OverlapIsFine = !NamesOverlap<W> || HasOverlap<W>;
template <class W>
concept EvaluateShardIsFine = !NamesEvaluateShard<W> || HasEvaluateShard<W>;
template <class W>
concept NotesAreFine = !NamesGetNotes<W> || HasNotes<W>;
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
  static_assert(!miniray::internal::IsActor<W> || NotesAreFine<W>,
                "the worker class's GetNotes must be `train::Notes GetNotes()` "
                "(or absl::StatusOr of it), and listed in its MINIRAY_ACTOR");
  static_assert(!miniray::internal::IsActor<W> || OverlapIsFine<W>,
                "the worker class needs all of `void SnapshotWeights()`, `void "
                "ApplyWeights(bool trained)` (absl::Status serves too) and "
                "`ReadOnly<NamedTensors> LendWeights()`, listed in its "
                "MINIRAY_ACTOR, or neither of the first two "
                "(train/overlapped_weights.h)");
  static constexpr bool value = true;
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_OPTIONAL_METHODS_H_
