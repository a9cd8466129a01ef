// What driver and workers of a train function send each other.

#ifndef MINIRAY_TRAIN_FUNCTIONS_MESSAGES_H_
#define MINIRAY_TRAIN_FUNCTIONS_MESSAGES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ps/option_map.h"
#include "runtime/api/miniray.h"
#include "runtime/wire/codec.h"
#include "train/checkpoint.h"
#include "train/collective/rendezvous_store.h"
#include "train/data/dataset.h"
#include "train/metrics.h"

namespace miniray::train {

using Config = ps::OptionMap;

// One rank's part of a generation: what its Context knows.
struct GenerationStart {
  std::string function;  // As registered.
  std::string run_name;
  Config config;
  // Counts the runs of the function, from 0; a failure ends one on all ranks.
  int generation = 0;
  int rank = 0;
  int world_size = 1;
  // Among the ranks on this rank's node, by rank.
  int local_rank = 0;
  int local_world_size = 1;
  // Of the node among those with ranks, in the order of their first rank.
  int node_rank = 0;
  // HOST:PORT of each rank's actor, by rank; empty in the driver's process.
  std::vector<std::string> addresses;
  // Where the ranks find each other; none for one rank alone.
  std::optional<ActorHandle<RendezvousStore>> rendezvous;
  int64_t collective_timeout_ms = 0;  // See RunConfig.
  bool use_gpu = false;
  // Reports before this generation: its first one has this number.
  int first_report = 0;
  // See CheckpointConfig::frequency; at least 1.
  int checkpoint_frequency = 1;
  // What this rank goes on from, besides SharedStart::checkpoint.
  CheckpointFiles checkpoint;
};
MINIRAY_STRUCT(GenerationStart, function, run_name, config, generation, rank,
               world_size, local_rank, local_world_size, node_rank, addresses,
               rendezvous, collective_timeout_ms, use_gpu, first_report,
               checkpoint_frequency, checkpoint);

// What all ranks of a generation get alike, however large: it is put once, so
// that each node gets it once.
struct SharedStart {
  std::map<std::string, Dataset> datasets;  // Whole, by name.
  CheckpointFiles checkpoint;               // Rank 0's.
};
MINIRAY_STRUCT(SharedStart, datasets, checkpoint);

struct RankReport {
  int number = 0;  // Of the run, from 0.
  Metrics metrics;
  CheckpointFiles checkpoint;  // Empty: none.
};
MINIRAY_STRUCT(RankReport, number, metrics, checkpoint);

// What the ranks hear once all have reported.
struct ReportReply {
  bool stop = false;              // The function is to end here.
  bool wants_checkpoint = false;  // With the next report, whatever frequency.
};
MINIRAY_STRUCT(ReportReply, stop, wants_checkpoint);

// How the function ended on one rank.
struct RunOutcome {
  int code = 0;  // An absl::StatusCode.
  std::string message;
  // It failed because of another rank: see PeerFailure.
  bool peer_failed = false;
  int num_reports = 0;  // In this generation.
};
MINIRAY_STRUCT(RunOutcome, code, message, peer_failed, num_reports);

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_FUNCTIONS_MESSAGES_H_
