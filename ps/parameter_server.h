// The parameter server: an actor that holds the weights that several workers
// share, and brings the workers back to them.
//
//   MR_ASSIGN_OR_RETURN(ActorHandle<ParameterServer> server,
//                       CreateParameterServer(cluster, "momentum",
//                                             {{"momentum", 0.9}}));
//   MR_ASSIGN_OR_RETURN(SyncResult result,
//                       server.Call<&ParameterServer::SyncFromWorkers>(workers)
//                           .Get());
//
// A worker is an actor of any class with the methods
//   NamedTensors GetWeights();
//   void SetWeights(NamedTensors weights);
// and is known to the server by its index among the workers. Instead of
// GetWeights, the server calls
//   ReadOnly<NamedTensors> LendWeights();
// where the class has it: what it returns may be the memory that the worker
// trains in (train/state_dict.h), for it is only read until SetWeights is
// called or the synchronisation has failed. SetWeights may take a ReadOnly,
// too.
//
// Where weights travel compressed, in pieces or to several shards
// (ServerOptions), the server calls
//   ReadOnly<WeightMessage> SendWeights(WeightRequest request);
//   void ReceiveWeights(ReadOnly<WeightMessage> message);
// instead, which a WeightExchange answers (weight_exchange.h).
//
// Servers with a strategy that takes gradients ("sgd", "adam", "adamw",
// "adagrad") step the weights themselves. Either they pull the gradients
// (SyncGradientsFromWorkers); then a worker has, instead of GetWeights and
// LendWeights,
//   NamedTensors GetGradients();             // or
//   ReadOnly<NamedTensors> LendGradients();
// Or workers push them when they like (GradientClient), and need no methods at
// all. Gradients are named like the parameters, in the order of the weights;
// buffers' values may stand among them.
//
// Two more methods are called where the class has them, together with the
// first, so they cost no time of their own:
//   double NumSamples();                     // or an integer
//   std::vector<std::string> BufferNames();
// NumSamples is the worker's weight in strategies like "weighted", which need
// it unless SetWorkerWeight was called; it is asked for at each
// synchronisation. BufferNames tells which tensors are no
// parameters; worker 0 is asked for it until the first synchronisation. Without
// it, names tell (tensor_info.h).
//
// A worker that has restarted since it was sent weights has those that it began
// with, unless its class has RestoreState: it fails with FAILED_PRECONDITION,
// or is left out (min_workers), instead of contributing them.

#ifndef MINIRAY_PS_PARAMETER_SERVER_H_
#define MINIRAY_PS_PARAMETER_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ps/check_weights.h"
#include "ps/gradient_messages.h"
#include "ps/gradient_server.h"
#include "ps/pull_weights.h"
#include "ps/server_options.h"
#include "ps/server_state.h"
#include "ps/shard_messages.h"
#include "ps/sharded_gradients.h"
#include "ps/sharded_server.h"
#include "ps/strategy_registry.h"
#include "ps/sync_result.h"
#include "ps/sync_strategy.h"
#include "ps/taken_weights.h"
#include "ps/weight_view.h"
#include "runtime/api/miniray.h"
#include "runtime/tensor/tensor_codec.h"

namespace miniray::ps {

struct EncodedWeights;
class PiecewiseStrategy;

// The actor's class; drivers use it through CreateParameterServer.
//
// The first weights that it sees fix the model: later ones must have the same
// names, shapes and element types, in the same order. A program that trains two
// models, or another one after that, has a server for each.
class ParameterServer {
 public:
  // Throws std::invalid_argument for what StrategyRegistry::Create refuses, and
  // std::runtime_error where the state in state_dir cannot be used.
  ParameterServer(const std::string& strategy, const StrategyOptions& options,
                  ServerOptions server_options, ShardRole role);

  // Pulls the weights of all workers at once, checks them, aggregates, and
  // pushes the result to all at once. Afterwards all hold the same bits: those
  // of PullWeights, or what to_workers makes of them. Waits as long as a worker
  // takes; logs every 30 s for whom.
  //
  // Errors: the worker's, beginning with "worker 2 (GanWorker 'w2')", when it
  // is dead or fails. INVALID_ARGUMENT, no workers, fewer than the strategy
  // needs, or weights that do not fit together or are not finite (with worker
  // and tensor). What the strategy returns. FAILED_PRECONDITION, a worker's
  // class lacks what the strategy or ServerOptions ask of it, or the worker has
  // restarted. In all these cases no worker has new weights. When a push fails,
  // the other workers have them, and so has the server; the error says which
  // version that is, and who does not have it. RESOURCE_EXHAUSTED and others,
  // the state cannot be saved (state_dir): nothing has changed.
  //
  // With ServerOptions::min_workers, workers that die, fail or are late are
  // left out and named in the warnings, and so are those that do not have the
  // weights that they were sent last (SyncResult::num_behind).
  absl::StatusOr<SyncResult> SyncFromWorkers(
      const std::vector<AnyActorHandle>& workers);

  // The same with gradients: pulls those of all workers, takes one step with
  // their mean, and pushes the new weights. Workers are what SyncFromWorkers
  // has it for, LendGradients or GetGradients in place of the other two.
  //
  // Errors: as of SyncFromWorkers. FAILED_PRECONDITION, the strategy takes
  // weights, or there are none yet (StartFromWorkers, PushWeights). A step that
  // cannot be saved is taken all the same.
  absl::StatusOr<SyncResult> SyncGradientsFromWorkers(
      const std::vector<AnyActorHandle>& workers);

  // The one of the two that the strategy takes, once for each id, for callers
  // who call again when the server was killed (CallOptions::max_retries): if
  // the weights that this synchronisation made were saved before, they are
  // pushed again, and nothing is pulled or aggregated. Needs
  // ServerOptions::state_dir with save_every = 1 for that.
  //
  // sync_id: not empty; another one for each synchronisation. Errors: as above;
  //   one that cannot be saved is done, and the next call with its id saves and
  //   pushes it.
  absl::StatusOr<SyncResult> SyncOnce(
      const std::vector<AnyActorHandle>& workers, const std::string& sync_id);

  // Returns the weights. Errors: FAILED_PRECONDITION, there are none yet, or
  // they were let go (ServerOptions::keep_weights).
  absl::StatusOr<NamedTensors> PullWeights() const;

  // Sets the weights, those of a checkpoint say; strategies that remember
  // start anew from them. Returns the new version.
  //
  // Errors: INVALID_ARGUMENT, they do not fit the model or are not finite.
  absl::StatusOr<int64_t> PushWeights(NamedTensors weights);

  // Makes worker 0's weights those of the server and of all workers, and
  // strategies start from them: the first thing to do where UsesStart says so.
  // Returns the new version. Errors: as of SyncFromWorkers.
  absl::StatusOr<int64_t> StartFromWorkers(
      const std::vector<AnyActorHandle>& workers);

  // Sends the server's weights to all workers: for equal starts.
  // Errors: as of SyncFromWorkers. FAILED_PRECONDITION, there are none yet.
  absl::Status PushToWorkers(const std::vector<AnyActorHandle>& workers);

  // Sets the weight of a worker in the mean of strategies like "weighted", in
  // place of NumSamples for all of them: those that are not set have 1.
  //
  // worker_id: index among the workers, from 0.  weight: finite, >= 0.
  // Errors: INVALID_ARGUMENT. FAILED_PRECONDITION, the strategy has no use for
  // weights.
  absl::Status SetWorkerWeight(int worker_id, double weight);
  // Sets these weights in place of all that were set before; with none,
  // NumSamples counts again. Errors: as above.
  absl::Status SetWorkerWeights(const std::map<int, double>& weights);

  absl::StatusOr<SyncStats> GetStats() const;

  // Saves what is not saved yet, with save_every above 1; does nothing without
  // state_dir. StopParameterServer calls it. Errors: RESOURCE_EXHAUSTED and
  // others, it cannot be saved.
  absl::Status SaveNow();

  // Returns all that a state_dir would hold, for a checkpoint of the caller's;
  // with several shards, that of all of them, of one time.
  // Errors: FAILED_PRECONDITION, a strategy that takes gradients.
  absl::StatusOr<std::string> ExportState() const;

  // Goes on from a state of ExportState. Workers keep the weights that they
  // have; one of a server without weights makes this one such a server. With
  // several shards all of them go on, or none.
  //
  // Errors: INVALID_ARGUMENT, the bytes are none, or of another model than the
  // server's. FAILED_PRECONDITION, as above, or the state is another
  // strategy's, or of a server with another number of shards, or, with shards,
  // without weights where they have some. RESOURCE_EXHAUSTED and others, it
  // cannot be saved (state_dir).
  absl::Status ImportState(const std::string& bytes);

  // Forgets what there is, in state_dir too: as if nothing had been done yet.
  // Idempotent. Errors: FAILED_PRECONDITION, a strategy that takes gradients.
  // RESOURCE_EXHAUSTED and others, that cannot be saved (state_dir).
  absl::Status BeginAnew();

  // --- Of strategies that take gradients; else FAILED_PRECONDITION. Workers
  // use them through GradientClient.

  // The worker takes part from now on. The first one's weights and buffers are
  // what the server starts from; all get the server's. With several shards the
  // one in front only sees to that start, and the worker joins each of them.
  //
  // Errors: INVALID_ARGUMENT, no such worker, or the weights are not of the
  // server's model, or the first ones are not finite.
  absl::StatusOr<JoinReply> JoinGradients(int worker_id, NamedTensors weights,
                                          std::vector<std::string> buffers);

  // Takes a gradient of the loss at these weights and returns what the worker
  // goes on with, after the wait that ServerOptions::mode and max_staleness
  // say. Runs beside all other methods.
  //
  // One whose id was taken is not used again.
  // Errors: INVALID_ARGUMENT, it is not of the server's model or not finite,
  // with worker and tensor. OUT_OF_RANGE, no such version yet.
  // DEADLINE_EXCEEDED, the wait for others took too long, with whom.
  // FAILED_PRECONDITION, there are no weights yet.
  absl::StatusOr<PushReply> PushGradients(ReadOnly<GradientPush> push);

  // As PullWeights, with their version.
  absl::StatusOr<PullReply> PullVersionedWeights() const;

  // Nobody waits for this worker until it joins or pushes again.
  absl::Status LeaveGradients(int worker_id);

  // --- Of servers with several shards; see sharded_server.h. Of the one in
  // front:

  std::vector<AnyActorHandle> GetShards() const { return role_.shards; }

  // Of a shard, for the one in front. `id` is that of the weights to be.
  // Errors of the calls themselves: UNAVAILABLE, the shard has restarted and
  // does not know what it is asked to go on with.

  PartState GetPartState() const;
  // Pulls this part of the workers' weights.
  PulledPart PullPart(const std::vector<AnyActorHandle>& workers,
                      const std::string& id);
  // Of what was pulled, but of the workers left out.
  absl::StatusOr<std::vector<WideSum>> SumPart(
      const std::string& id, const std::vector<LeftOutWorker>& left_out);
  // Aggregates and prepares the result. sums: over all shards.
  absl::StatusOr<AggregatedPart> AggregatePart(
      const std::vector<AnyActorHandle>& workers, const std::string& id,
      const std::string& sync_id, const std::vector<LeftOutWorker>& left_out,
      const std::vector<WideSum>& sums);
  // Prepare what comes from worker 0, or from elsewhere.
  Outcome StartPart(const std::vector<AnyActorHandle>& workers,
                    const std::string& id);
  Outcome SetPart(const ReadOnly<WeightMessage>& part, const std::string& id);
  // Prepares a state of the shard's own ExportState, whose weights have this
  // id; one without weights (an empty id) is the shard's at once.
  Outcome ImportPart(const std::string& bytes, const std::string& id);
  // What is prepared is the shard's state from now on. Idempotent.
  absl::Status CommitPart(const std::string& id);
  // It is not, and never was. reset: the strategy forgets what it remembers.
  absl::Status AbandonPart(bool reset);
  PushedPart PushPart(const std::vector<AnyActorHandle>& workers,
                      const std::vector<LeftOutWorker>& left_out, bool of_sync);
  // Sends this part to these workers, without waiting.
  absl::Status SendPart(const std::vector<AnyActorHandle>& workers);
  ReadOnly<WeightMessage> GetPart() const;
  // Of a shard that takes gradients: this is its part of the weights from now
  // on. Returns its version. All else: as of GradientModel::Start.
  absl::StatusOr<int64_t> StartGradientPart(
      const ReadOnly<WeightMessage>& part,
      const std::optional<std::vector<std::string>>& buffers, int64_t version);

 private:
  // INVALID_ARGUMENT, FAILED_PRECONDITION: they cannot be synchronised.
  absl::Status CheckWorkers(const std::vector<AnyActorHandle>& workers) const;
  enum class Pulled { kWeights, kWeightsInFull, kGradients };
  // Returns the contributions that the options let through, and notes who is
  // left out.
  absl::StatusOr<PulledWeights> Pull(const std::vector<AnyActorHandle>& workers,
                                     Pulled what);
  PullRequest RequestOf(const std::vector<AnyActorHandle>& workers,
                        Pulled what) const;
  // FAILED_PRECONDITION unless the strategy weighs workers.
  absl::Status CheckWeighs() const;
  // FAILED_PRECONDITION if the strategy weighs workers, and neither they nor
  // SetWorkerWeight say how much.
  absl::Status CheckWeightsInMean(
      const std::vector<AnyActorHandle>& workers) const;
  void SetWeightsInMean(std::vector<Contribution>* contributions) const;
  // What is known of each tensor: what a worker told, or what the names tell.
  std::vector<TensorInfo> InfoOfModel(const NamedTensors& weights) const;
  absl::StatusOr<NamedTensors> Aggregate(
      const std::vector<Contribution>& contributions,
      const std::vector<AnyActorHandle>& workers);
  absl::StatusOr<SyncResult> Sync(const std::vector<AnyActorHandle>& workers,
                                  const std::string& sync_id);
  // Of one that is done already: only the push.
  absl::StatusOr<SyncResult> PushAgain(
      const std::vector<AnyActorHandle>& workers);
  // The same in pieces (piece_bytes); none if it has to be done with the whole
  // model at once: then nothing has changed. piecewise_sync.cc has it.
  absl::StatusOr<std::optional<SyncResult>> SyncInPieces(
      const std::vector<AnyActorHandle>& workers, const std::string& sync_id);
  class PiecewiseAttempt;
  // FAILED_PRECONDITION unless the strategy takes gradients, or weights.
  absl::Status CheckTakes(bool gradients) const;
  // FAILED_PRECONDITION also for the one in front of shards.
  absl::Status CheckHasGradients() const;
  // Makes weights_, layout_ and the version those of gradients_.
  void FollowGradients();
  // As Push, of all that the shards have.
  absl::Status PushOfShards(const std::vector<AnyActorHandle>& workers);
  // Workers that are left out are not waited for. holds_view: see
  // PulledWeights; empty: none does. behind: unless null, gets the workers that
  // do not have the weights, whatever is returned.
  absl::Status Push(const std::vector<AnyActorHandle>& workers,
                    const std::vector<LeftOut>& left_out = {},
                    const std::vector<bool>& holds_view = {},
                    std::vector<BehindWorker>* behind = nullptr);
  // What came of a push. pushed: for each worker, but for those that were not
  // awaited; calls: those that are late may go on. *behind as above.
  absl::Status Judge(const std::vector<AnyActorHandle>& workers,
                     const std::vector<bool>& awaited,
                     const std::vector<absl::Status>& pushed,
                     std::vector<ObjectRef<void>> calls,
                     std::vector<BehindWorker>* behind);
  // Sends the server's weights to those who failed or died in a push, with
  // min_workers. Shards wait to be told to: a worker takes all parts or none.
  absl::Status SendAgain(const std::vector<AnyActorHandle>& workers,
                         const std::vector<BehindWorker>& behind);
  // Sends these without waiting: one that is away gets them when it is back,
  // and only the last.
  void SendWhenBack(const AnyActorHandle& worker,
                    const EncodedWeights& weights);
  std::string PushMethod() const;
  absl::StatusOr<EncodedWeights> EncodeWhole() const;
  void MakeView();              // A new one.
  absl::Time Deadline() const;  // Of a pull or push that begins now.
  // They are the server's from now on; saved as the options say.
  // contributors: as of WeightMessage.
  // id: of the weights, for a WeightView; empty: a new one.
  absl::Status Replace(NamedTensors weights, const std::string& sync_id,
                       std::vector<int64_t> contributors = {},
                       const std::string& id = "");
  // What there is before something new, to return to; of a shard until
  // CommitPart.
  struct Before {
    std::string next_id;  // Of the weights that a shard prepares.
    NamedTensors weights;
    std::optional<WeightView> view;
    std::optional<ModelLayout> layout;
    int64_t version;
    int64_t num_syncs;
    std::string last_sync;
    bool sync_counted;
    int64_t unsaved;
    std::map<int, double> worker_weights;
  };
  Before Now(const std::string& next_id) const;
  // All of it but for what the strategy remembers.
  void ReturnTo(Before before);
  // As Replace, of a synchronisation, which is counted. One with an id that
  // cannot be saved is done, and only saved and pushed when it is asked for
  // again; one without would be done twice, so that all is as it was: with
  // undo the strategy, too, goes back.
  absl::Status ReplaceInSync(NamedTensors weights, const std::string& sync_id,
                             std::vector<int64_t> contributors,
                             const std::string& id,
                             absl::FunctionRef<absl::Status()> undo);
  void Adopt(NamedTensors weights);
  // Whether the synchronisation that made weights_ has reached the workers.
  void CountSync(bool reached_all);
  // A new one, before it is saved: a server that is killed after that, and has
  // its push repeated, has done it.
  void CountNewSync();
  // The id of the synchronisation that made the weights; empty: it has none.
  std::string LastSync() const {
    return gradients_ != nullptr ? gradients_->last_sync() : last_sync_;
  }
  absl::Status Save();
  absl::Status SaveTo(const std::string& folder);
  // It refers to the server's tensors.
  absl::StatusOr<ServerState> StateNow() const;
  absl::Status TakeState(ServerState state);
  // As TakeState; what is under way from an earlier time ends. Saved.
  absl::Status GoOnFrom(ServerState state);
  // What ImportState is given, if this server or shard can go on from it.
  absl::StatusOr<ServerState> ReadState(const std::string& bytes) const;
  absl::Status ForgetWeights();  // As if there had never been any.
  absl::Status CheckTravels() const;
  void Restore();
  void Warn(const absl::Status& status);
  absl::Status SetBufferNames(const NamedTensors& model,
                              std::vector<std::string> names);

  // --- Of a shard.

  // A synchronisation under way.
  struct Attempt {
    std::string id;
    PulledWeights pulled;
  };
  bool IsShard() const { return role_.num_shards > 1 && role_.shards.empty(); }
  void UpdateInfo(const NamedTensors& part,
                  const std::vector<TensorPart>& places);
  absl::Status MovePrepared();
  void CheckFolderIsOfThisCut() const;

  const std::unique_ptr<SyncStrategy> strategy_;
  PiecewiseStrategy* const pieces_;  // strategy_ if it is one; else null.
  const StrategyId strategy_id_;
  const ServerOptions options_;
  const ShardRole role_;
  std::unique_ptr<ShardedServer> sharded_;  // In front of shards; else null.
  // The same where these take gradients.
  std::unique_ptr<ShardedGradients> sharded_gradients_;
  std::optional<Attempt> attempt_;
  std::optional<Before> before_;
  std::string prepared_;  // By an earlier process, of this id; else empty.
  // Of a strategy that takes gradients; else null. It then has the weights and
  // all that is saved, and weights_ is what was pushed last.
  std::unique_ptr<GradientServer> gradients_;
  std::map<int, double> worker_weights_;  // 1 where there is none.
  std::optional<ModelLayout> layout_;     // Of the first weights_.
  // What worker 0 told of its tensors; null if nothing.
  std::optional<std::vector<std::string>> buffer_names_;
  std::shared_ptr<const std::vector<TensorInfo>> info_;
  NamedTensors weights_;
  std::optional<WeightView> view_;  // Where weights travel as differences.
  std::string last_sync_;     // Made weights_; empty: none, or it has no id.
  bool sync_counted_ = true;  // In num_syncs: the one that made weights_.
  int64_t unsaved_ = 0;       // Changes since the last save.
  // By actor: pushes that nobody waits for.
  std::map<std::string, ObjectRef<void>> late_pushes_;
  TakenWeights taken_;
  SyncStats stats_;
};
MINIRAY_ACTOR(
    ParameterServer,
    Constructor<std::string, StrategyOptions, ServerOptions, ShardRole>,
    &ParameterServer::SyncFromWorkers,
    &ParameterServer::SyncGradientsFromWorkers, &ParameterServer::SyncOnce,
    &ParameterServer::PullWeights, &ParameterServer::PushWeights,
    &ParameterServer::StartFromWorkers, &ParameterServer::PushToWorkers,
    &ParameterServer::SetWorkerWeight, &ParameterServer::SetWorkerWeights,
    &ParameterServer::GetStats, &ParameterServer::ExportState,
    &ParameterServer::ImportState, &ParameterServer::BeginAnew,
    &ParameterServer::JoinGradients, &ParameterServer::PushGradients,
    &ParameterServer::PullVersionedWeights, &ParameterServer::LeaveGradients,
    &ParameterServer::GetShards, &ParameterServer::GetPartState,
    &ParameterServer::PullPart, &ParameterServer::SumPart,
    &ParameterServer::AggregatePart, &ParameterServer::StartPart,
    &ParameterServer::SetPart, &ParameterServer::ImportPart,
    &ParameterServer::CommitPart, &ParameterServer::AbandonPart,
    &ParameterServer::PushPart, &ParameterServer::SendPart,
    &ParameterServer::GetPart, &ParameterServer::StartGradientPart,
    &ParameterServer::SaveNow);

// INVALID_ARGUMENT for what no server's SetWorkerWeight takes.
absl::Status CheckWorkerWeight(int worker_id, double weight);

// Creates a parameter server and returns its handle at once. It asks for no
// CPU unless `actor_options` says otherwise, so it never takes the place of a
// worker. One with a state_dir restarts as often as it takes, unless
// `actor_options` says how often. With num_shards above 1 the handle is that of
// the server in front of the shards, which have no names; they lie on different
// nodes unless `actor_options` say where. StopParameterServer ends all of them,
// and so does the end of the driver; Kill ends only the one in front.
//
// shards: unless null, gets the shards' handles (none if there is one only),
//   for those who will end them even if the one in front is dead.
// Errors: of StrategyRegistry::Create and Validate, before anything is created.
// INVALID_ARGUMENT, an option that this strategy has no use for. Of
// Cluster::CreateActor.
absl::StatusOr<ActorHandle<ParameterServer>> CreateParameterServer(
    const Cluster& cluster, absl::string_view strategy = "average",
    const StrategyOptions& options = {},
    const ServerOptions& server_options = {},
    const ActorOptions& actor_options = {.resources = {.cpu = 0}},
    std::vector<AnyActorHandle>* shards = nullptr);

// Saves what is not saved yet (SaveNow), where there is a state_dir, and kills
// the server with its shards, which a dead one cannot name: they live on then.
// Kill alone saves nothing, nor does the end of the driver. Returns the first
// error; a server that does not answer is killed all the same.
absl::Status StopParameterServer(const ActorHandle<ParameterServer>& server);

}  // namespace miniray::ps

#endif  // MINIRAY_PS_PARAMETER_SERVER_H_
