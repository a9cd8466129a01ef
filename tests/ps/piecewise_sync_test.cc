// Synchronisations in pieces, with real worker processes.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ps/parameter_server.h"
#include "ps/strategy_registry.h"
#include "ps/weight_exchange.h"
#include "tests/ps/exchange_test.h"
#include "tests/ps/named_pipe.h"
#include "tests/ps/survival.h"
#include "tests/ps/tensors.h"
#include "tests/runtime/test_cluster.h"

namespace miniray::ps {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// One grid step of floats, so that the first tensor is cut several times.
constexpr int64_t kPieceBytes = 1 << 14;
constexpr int64_t kPieces = (kModelBytes + kPieceBytes - 1) / kPieceBytes;
constexpr int64_t kMiddlePiece = kPieces / 2;

// One that can tell what it was asked, in which order, and make trouble.
class PieceWorker {
 public:
  explicit PieceWorker(NamedTensors weights) : weights_(std::move(weights)) {}

  NamedTensors GetWeights() { return weights_; }
  void SetWeights(const NamedTensors& weights) {
    for (size_t i = 0; i < weights.size(); ++i) {
      weights_[i].second.copy_(weights[i].second);
    }
  }
  void Add(const NamedTensors& update) {
    for (size_t i = 0; i < update.size(); ++i) {
      weights_[i].second.add_(update[i].second);
    }
  }
  absl::StatusOr<ReadOnly<WeightMessage>> SendWeights(
      const WeightRequest& request) {
    if (request.num_parts > 1) {
      events_.push_back(absl::StrCat("send ", request.part));
    }
    if (IsTime("die", request.part)) kill(getpid(), SIGKILL);
    if (IsTime("fail", request.part)) return absl::InternalError("not today");
    // As another process of this worker would answer.
    if (IsTime("forget", request.part)) exchange_ = WeightExchange();
    return exchange_.Send(request, weights_);
  }
  absl::Status ReceiveWeights(const ReadOnly<WeightMessage>& message) {
    if (message.value.num_parts > 1) {
      events_.push_back(absl::StrCat("receive ", message.value.part));
    }
    if (IsTime("refuse", message.value.part)) {
      return absl::InternalError("no room");
    }
    if (IsTime("die taking", message.value.part)) kill(getpid(), SIGKILL);
    return exchange_.Receive(message.value, [this](const NamedTensors& w) {
      SetWeights(w);
      return absl::OkStatus();
    });
  }
  // Twice the index of the worker in the tests, and one.
  int64_t NumSamples() { return 2 * Values(weights_[3].second)[0] + 1; }
  std::vector<std::string> BufferNames() { return {"bias", "count"}; }

  // Once, at that piece: "die", "fail", "forget" as it is asked for it,
  // "refuse", "die taking" as it is given it.
  void MakeTrouble(std::string trouble, int64_t piece) {
    trouble_ = std::move(trouble);
    bad_piece_ = piece;
  }
  // Until somebody has opened the named pipe for writing and closed it again.
  void BlockOn(const std::string& pipe) {
    const int fd = open(pipe.c_str(), O_RDONLY | O_CLOEXEC);
    char byte;
    while (read(fd, &byte, 1) > 0) {
    }
    close(fd);
  }
  std::vector<std::string> Events() { return std::exchange(events_, {}); }

 private:
  bool IsTime(absl::string_view trouble, int64_t piece) {
    if (trouble_ != trouble || piece != bad_piece_) return false;
    trouble_.clear();
    return true;
  }

  NamedTensors weights_;
  WeightExchange exchange_;
  std::vector<std::string> events_;
  std::string trouble_;
  int64_t bad_piece_ = 0;
};
MINIRAY_ACTOR(PieceWorker, Constructor<NamedTensors>, &PieceWorker::GetWeights,
              &PieceWorker::SetWeights, &PieceWorker::Add,
              &PieceWorker::SendWeights, &PieceWorker::ReceiveWeights,
              &PieceWorker::NumSamples, &PieceWorker::BufferNames,
              &PieceWorker::MakeTrouble, &PieceWorker::BlockOn,
              &PieceWorker::Events);

// One without what pieces need.
class PlainWorker {
 public:
  NamedTensors GetWeights() { return Model(0); }
  void SetWeights(NamedTensors weights) {}
};
MINIRAY_ACTOR(PlainWorker, Constructor<>, &PlainWorker::GetWeights,
              &PlainWorker::SetWeights);

class PiecewiseSyncTest : public ExchangeTest<PieceWorker> {
 protected:
  // Expects that it succeeds, in so many pieces.
  SyncResult SyncIn(int64_t num_pieces,
                    const ActorHandle<ParameterServer>& server) {
    const absl::StatusOr<SyncResult> result = Sync(server);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    EXPECT_EQ(result->num_pieces, num_pieces);
    return *result;
  }

  void MakeTrouble(size_t worker, const std::string& trouble,
                   int64_t piece = kMiddlePiece) {
    ASSERT_TRUE(workers_[worker]
                    .Call<&PieceWorker::MakeTrouble>(trouble, piece)
                    .Get()
                    .ok());
  }

  std::vector<NamedTensors> WeightsOfAll() {
    std::vector<NamedTensors> weights;
    for (size_t i = 0; i < workers_.size(); ++i) {
      weights.push_back(WeightsOf(i));
    }
    return weights;
  }

  // Of a run of three synchronisations of three workers, without pieces.
  NamedTensors Undisturbed(const std::string& strategy) {
    ResetWorkers();
    const auto server = StartServer({}, strategy);
    for (int step = 0; step < 3; ++step) {
      Train(step);
      EXPECT_TRUE(Sync(server).ok());
    }
    EXPECT_TRUE(server.Kill().ok());
    return WeightsOf(0);
  }

  // A NaN in the middle of the first tensor.
  static NamedTensors Poison() {
    NamedTensors update = Model(0);
    for (auto& [name, tensor] : update) tensor.zero_();
    update[0].second.view({-1})[20'000] =
        std::numeric_limits<float>::quiet_NaN();
    return update;
  }
};

TEST_F(PiecewiseSyncTest, StrategiesOfElementsHaveTheBitsOfTheWholeModel) {
  StartWorkers(5);
  int num_piecewise = 0;
  for (const std::string& name : StrategyRegistry::Get().NamesTaking(false)) {
    SCOPED_TRACE(name);
    const auto strategy = StrategyRegistry::Get().Create(name, {});
    ASSERT_TRUE(strategy.ok()) << strategy.status();
    if (dynamic_cast<WholeModelStrategy*>(strategy->get()) != nullptr) {
      EXPECT_THAT(CreateParameterServer(cluster_, name, {},
                                        {.piece_bytes = kPieceBytes})
                      .status()
                      .ToString(),
                  AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr(name),
                        HasSubstr("leave piece_bytes at 0")));
      continue;
    }
    ++num_piecewise;
    const auto run = [&](int64_t piece_bytes, NamedTensors* pulled) {
      ResetWorkers();
      const auto server = StartServer({.piece_bytes = piece_bytes}, name);
      auto started =
          server.Call<&ParameterServer::StartFromWorkers>(handles_).Get();
      EXPECT_TRUE(started.ok()) << started.status();
      for (int step = 0; step < 3; ++step) {
        Train(step);
        const SyncResult result =
            SyncIn(piece_bytes == 0 ? 0 : kPieces, server);
        EXPECT_EQ(result.version, step + 2);
        EXPECT_EQ(result.bytes, 2 * 5 * kModelBytes);
      }
      ExpectAllTheSame();
      auto weights = server.Call<&ParameterServer::PullWeights>().Get();
      EXPECT_TRUE(weights.ok()) << weights.status();
      if (weights.ok()) *pulled = *std::move(weights);
      EXPECT_TRUE(server.Kill().ok());
      return WeightsOf(0);
    };
    NamedTensors pulled_whole, pulled_pieces;
    const NamedTensors whole = run(0, &pulled_whole);
    const NamedTensors pieces = run(kPieceBytes, &pulled_pieces);
    ExpectSame(pieces, whole);
    ExpectSame(pulled_pieces, pulled_whole);
  }
  EXPECT_GE(num_piecewise, 10);
}

// Without a start the first one goes at once: the server knows no model yet.
TEST_F(PiecewiseSyncTest, PiecesArePushedWhileLaterOnesAreStillAskedFor) {
  StartWorkers(2);
  const auto server = StartServer({.piece_bytes = kPieceBytes});
  SyncIn(0, server);
  SyncIn(kPieces, server);
  for (const auto& worker : workers_) {
    const auto events = worker.Call<&PieceWorker::Events>().Get();
    ASSERT_TRUE(events.ok()) << events.status();
    const auto when = [&](const char* what, int64_t piece) {
      return std::find(events->begin(), events->end(),
                       absl::StrCat(what, " ", piece)) -
             events->begin();
    };
    ASSERT_EQ(static_cast<int64_t>(events->size()), 2 * kPieces);
    for (int64_t piece = 0; piece < kPieces; ++piece) {
      ASSERT_THAT(*events, Contains(absl::StrCat("send ", piece)));
      ASSERT_THAT(*events, Contains(absl::StrCat("receive ", piece)));
    }
    // Four are under way beside the one that the server works on. So later
    // pieces are asked for only when earlier ones are back.
    for (int64_t piece = 5; piece < kPieces; ++piece) {
      EXPECT_LT(when("receive", piece - 5), when("send", piece));
    }
    EXPECT_EQ(when("receive", kPieces - 1), 2 * kPieces - 1);
  }
}

TEST_F(PiecewiseSyncTest, WhatIsNotFiniteLeavesAllOnTheOldWeights) {
  StartWorkers(3);
  for (const char* strategy : {"average", "momentum", "fedadam"}) {
    SCOPED_TRACE(strategy);
    const NamedTensors undisturbed = Undisturbed(strategy);
    ResetWorkers();
    const auto server = StartServer({.piece_bytes = kPieceBytes}, strategy);
    Train(0);
    SyncIn(0, server);
    Train(1);
    SyncIn(kPieces, server);
    Train(2);
    std::vector<NamedTensors> before = WeightsOfAll();
    AddTo(1, Poison());
    EXPECT_THAT(Sync(server).status().ToString(),
                AllOf(HasSubstr("worker 1 (PieceWorker"),
                      HasSubstr("'fc.weight'"), HasSubstr("infinite or NaN")));
    EXPECT_EQ(VersionOf(server), 2);
    ExpectSame(WeightsOf(0), before[0]);
    ExpectSame(WeightsOf(2), before[2]);
    // As if there had been none of it, for the strategy too.
    ASSERT_TRUE(
        workers_[1].Call<&PieceWorker::SetWeights>(before[1]).Get().ok());
    SyncIn(kPieces, server);
    ExpectAllTheSame();
    ExpectSame(WeightsOf(0), undisturbed);
    ASSERT_TRUE(server.Kill().ok());
  }
}

TEST_F(PiecewiseSyncTest, AWorkerThatFailsLeavesAllOnTheOldWeights) {
  StartWorkers(3);
  // Asked for a piece, or given one.
  for (const char* trouble : {"fail", "refuse"}) {
    SCOPED_TRACE(trouble);
    const NamedTensors undisturbed = Undisturbed("fedadam");
    ResetWorkers();
    const auto server = StartServer({.piece_bytes = kPieceBytes}, "fedadam");
    Train(0);
    SyncIn(0, server);
    Train(1);
    SyncIn(kPieces, server);
    Train(2);
    const std::vector<NamedTensors> before = WeightsOfAll();
    MakeTrouble(2, trouble);
    EXPECT_THAT(Sync(server).status().ToString(),
                AllOf(HasSubstr("INTERNAL"), HasSubstr("worker 2")));
    EXPECT_EQ(VersionOf(server), 2);
    for (size_t i = 0; i < before.size(); ++i) {
      ExpectSame(WeightsOf(i), before[i]);
    }
    SyncIn(kPieces, server);
    ExpectAllTheSame();
    ExpectSame(WeightsOf(0), undisturbed);
    ASSERT_TRUE(server.Kill().ok());
  }
}

TEST_F(PiecewiseSyncTest, AWorkerThatDiesLeavesTheOthersOnTheOldWeights) {
  StartWorkers(3);
  const auto server = StartServer({.piece_bytes = kPieceBytes});
  SyncIn(0, server);
  Train(1);
  const std::vector<NamedTensors> before = WeightsOfAll();
  MakeTrouble(1, "die");
  EXPECT_THAT(Sync(server).status().ToString(),
              AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("worker 1")));
  EXPECT_EQ(VersionOf(server), 1);
  ExpectSame(WeightsOf(0), before[0]);
  ExpectSame(WeightsOf(2), before[2]);
  // Those that are left go on.
  workers_.erase(workers_.begin() + 1);
  handles_.erase(handles_.begin() + 1);
  SyncIn(kPieces, server);
  ExpectAllTheSame();
}

TEST_F(PiecewiseSyncTest, AWorkerThatDiesInTheLastPushGetsTheWeightsAtOnce) {
  StartWorkers(3, /*max_restarts=*/1);
  const auto server =
      StartServer({.min_workers = 2, .piece_bytes = kPieceBytes});
  SyncIn(0, server);
  Train(1);
  MakeTrouble(2, "die taking", kPieces - 1);
  const SyncResult result = SyncIn(kPieces, server);
  EXPECT_EQ(result.version, 2);
  EXPECT_EQ(result.num_lost, 0);  // Its contribution had come.
  EXPECT_EQ(result.num_behind, 1);
  const NamedTensors weights = WeightsOf(0);
  ExpectSame(WeightsOf(1), weights);
  // Nobody asks for it: the weights come by themselves.
  ASSERT_TRUE(Eventually([&] {
    const auto got = workers_[2]
                         .With({.max_retries = -1})
                         .Call<&PieceWorker::GetWeights>()
                         .Get();
    return got.ok() && SameBits((*got)[0].second, weights[0].second);
  }));
  // It has them, so it counts again.
  Train(2);
  const auto next = Sync(server);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->num_lost, 0);
  EXPECT_EQ(next->num_behind, 0);
  ExpectAllTheSame();
}

// Its calls wait for its next process, which answers the last ones with what it
// began with.
TEST_F(PiecewiseSyncTest, AWorkerThatRestartsBetweenTwoPiecesIsAnError) {
  StartWorkers(2);
  const auto worker = cluster_.CreateActor<PieceWorker>(
      {.resources = {.cpu = 0}, .max_restarts = 1, .max_retries = -1},
      Model(2));
  ASSERT_TRUE(worker.ok()) << worker.status();
  workers_.push_back(*worker);
  handles_.push_back(*worker);
  const auto server = StartServer({.piece_bytes = kPieceBytes});
  SyncIn(0, server);
  Train(1);
  const std::vector<NamedTensors> before = WeightsOfAll();
  MakeTrouble(2, "die taking");
  EXPECT_THAT(
      Sync(server).status().ToString(),
      AllOf(HasSubstr("worker 2 (PieceWorker"), HasSubstr("has restarted")));
  EXPECT_EQ(VersionOf(server), 1);
  ExpectSame(WeightsOf(0), before[0]);
  ExpectSame(WeightsOf(1), before[1]);
}

TEST_F(PiecewiseSyncTest, WhoIsLeftOutIsLeftOutOfTheWholeModel) {
  const auto run = [&](int64_t piece_bytes) {
    StartWorkers(4);
    const auto server = StartServer({.non_finite = NonFinitePolicy::kDropWorker,
                                     .min_workers = 2,
                                     .piece_bytes = piece_bytes},
                                    "fedadam");
    Train(0);
    SyncIn(0, server);
    const int64_t num_pieces = piece_bytes == 0 ? 0 : kPieces;
    Train(1);
    SyncIn(num_pieces, server);
    // One is not finite: the others do it at once.
    Train(2);
    AddTo(1, Poison());
    SyncResult result = SyncIn(0, server);
    EXPECT_EQ(result.num_refused, 1);
    EXPECT_EQ(result.version, 3);
    ExpectAllTheSame();
    Train(3);
    SyncIn(num_pieces, server);
    // One dies on its way, or before.
    Train(4);
    if (piece_bytes == 0) {
      const int64_t pid = nodes_.Info(workers_[3]).pid();
      EXPECT_TRUE(workers_[3].Kill().ok());
      EXPECT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
    } else {
      MakeTrouble(3, "die");
    }
    result = SyncIn(0, server);
    EXPECT_EQ(result.num_lost, 1);
    EXPECT_EQ(result.version, 5);
    workers_.pop_back();
    ExpectAllTheSame();
    EXPECT_TRUE(server.Kill().ok());
    NamedTensors weights = WeightsOf(0);
    EndWorkers();
    return weights;
  };
  const NamedTensors whole = run(0);
  ExpectSame(run(kPieceBytes), whole);
}

TEST_F(PiecewiseSyncTest, AWorkerThatIsLateIsLeftOut) {
  StartWorkers(3);
  const auto server = StartServer({.min_workers = 2,
                                   .sync_timeout_seconds = 2,
                                   .piece_bytes = kPieceBytes});
  SyncIn(0, server);
  Train(1);
  const std::string pipe = Folder("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const ObjectRef<void> blocked = workers_[1].Call<&PieceWorker::BlockOn>(pipe);
  const int writer = OpenForWriting(pipe);
  SyncResult result = SyncIn(0, server);
  EXPECT_EQ(result.num_lost, 1);
  EXPECT_EQ(result.version, 2);
  ExpectSame(WeightsOf(0), WeightsOf(2));
  close(writer);
  ASSERT_TRUE(blocked.Get().ok());
  // It gets them then, and takes part again.
  ASSERT_TRUE(Eventually([&] {
    return SameBits(WeightsOf(1)[0].second, WeightsOf(0)[0].second);
  }));
  ASSERT_TRUE(Eventually([&] {
    Train(2);
    const auto next = Sync(server);
    return next.ok() && next->num_pieces == kPieces;
  }));
  ExpectAllTheSame();
}

TEST_F(PiecewiseSyncTest, AWorkerThatHasRestartedContributesOneModel) {
  StartWorkers(3);
  const NamedTensors undisturbed = Undisturbed("fedadam");
  ResetWorkers();
  const auto server = StartServer({.piece_bytes = kPieceBytes}, "fedadam");
  Train(0);
  SyncIn(0, server);
  Train(1);
  // Between two pieces; its weights happen to be the same.
  MakeTrouble(1, "forget");
  SyncIn(0, server);
  Train(2);
  SyncIn(kPieces, server);
  ExpectAllTheSame();
  ExpectSame(WeightsOf(0), undisturbed);
}

TEST_F(PiecewiseSyncTest, AsksForSamplesAndBuffers) {
  StartWorkers(3);
  for (const char* strategy : {"weighted", "diloco"}) {
    SCOPED_TRACE(strategy);
    const auto run = [&](int64_t piece_bytes) {
      ResetWorkers();
      const auto server = StartServer({.piece_bytes = piece_bytes}, strategy);
      // So that the first synchronisation is in pieces.
      EXPECT_TRUE(
          server.Call<&ParameterServer::PushWeights>(Model(7)).Get().ok());
      EXPECT_TRUE(
          server.Call<&ParameterServer::PushToWorkers>(handles_).Get().ok());
      ResetWorkers();
      SyncIn(piece_bytes == 0 ? 0 : kPieces, server);
      ExpectAllTheSame();
      EXPECT_TRUE(server.Kill().ok());
      return WeightsOf(0);
    };
    const NamedTensors whole = run(0);
    ExpectSame(run(kPieceBytes), whole);
    // Of 1, 3 and 5 samples; sin(0), sin(1), sin(2). A buffer is their mean.
    const bool weighted = std::string(strategy) == "weighted";
    const double bias = Values(whole[2].second)[0];
    EXPECT_NEAR(bias,
                weighted ? (3 * 0.841471 + 5 * 0.909297) / 9
                         : (0.841471 + 0.909297) / 3,
                1e-5);
  }
}

// Each server synchronises twice and saves; the next one, with pieces of
// another size, goes on.
TEST_F(PiecewiseSyncTest, WhatIsSavedGoesOnWithAnyPieces) {
  StartWorkers(3);
  const auto run = [&](const std::vector<int64_t>& piece_bytes) {
    ResetWorkers();
    const std::string folder = Folder("saved");
    int step = 0;
    for (size_t k = 0; k < piece_bytes.size(); ++k) {
      const auto server = StartServer(
          {.state_dir = folder, .piece_bytes = piece_bytes[k]}, "fedadam");
      for (int i = 0; i < 2; ++i) {
        Train(step++);
        const auto result = Sync(server);
        EXPECT_TRUE(result.ok()) << result.status();
        if (!result.ok()) return NamedTensors();
        EXPECT_EQ(result->version, step);
        // The first server knows no model, and others none of the workers
        // where they were sent weights without an id.
        const bool known = i > 0 || (k > 0 && piece_bytes[k - 1] > 0);
        EXPECT_EQ(result->num_pieces > 0, piece_bytes[k] > 0 && known);
      }
      EXPECT_TRUE(server.Kill().ok());
    }
    ExpectAllTheSame();
    return WeightsOf(0);
  };
  const NamedTensors whole = run({0, 0, 0});
  ExpectSame(run({kPieceBytes, 0, kPieceBytes}), whole);
  ExpectSame(run({0, kPieceBytes, 0}), whole);
  ExpectSame(run({kPieceBytes, 2 * kPieceBytes, kPieceBytes}), whole);
}

// No worker has the last piece, and so none has the weights, before the state
// is saved.
TEST_F(PiecewiseSyncTest, AStateThatCannotBeSavedReachesNobody) {
  StartWorkers(2);
  const std::string folder = Folder("unsaved");
  const std::string aside = Folder("aside");
  const auto server = StartServer(
      {.state_dir = folder, .piece_bytes = kPieceBytes}, "momentum");
  const auto sync = [&](const std::string& id) {
    return server.Call<&ParameterServer::SyncOnce>(handles_, id).Get();
  };
  ASSERT_TRUE(sync("a").ok());
  Train(1);
  const std::vector<NamedTensors> before = WeightsOfAll();
  // Whatever one may write elsewhere, one may not there.
  std::filesystem::rename(folder, aside);
  std::filesystem::create_directory_symlink("/proc/none", folder);
  EXPECT_FALSE(sync("b").ok());
  ExpectSame(WeightsOf(0), before[0]);
  ExpectSame(WeightsOf(1), before[1]);
  std::filesystem::remove(folder);
  std::filesystem::rename(aside, folder);
  const auto again = sync("b");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->repeated);
  EXPECT_EQ(again->version, 2);
  ExpectAllTheSame();
  EXPECT_FALSE(SameBits(WeightsOf(0)[0].second, before[0][0].second));
  Train(2);
  const auto next = sync("c");
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->num_pieces, kPieces);
}

TEST_F(PiecewiseSyncTest, WithoutAnIdWhatCannotBeSavedLeavesNoTrace) {
  StartWorkers(2);
  const auto run = [&](bool disturb) {
    ResetWorkers();
    const std::string folder = Folder("traceless");
    const auto server = StartServer(
        {.state_dir = folder, .piece_bytes = kPieceBytes}, "fedadam");
    EXPECT_TRUE(server.WaitReady().ok());
    for (int step = 0; step < 3; ++step) {
      Train(step);
      if (disturb) {
        // A folder in the file's place.
        const std::string next = folder + "/server.state.next";
        std::filesystem::create_directories(next);
        EXPECT_THAT(Sync(server).status().ToString(),
                    HasSubstr("save the parameter server's state"));
        std::filesystem::remove(next);
        EXPECT_EQ(VersionOf(server), step);
      }
      const auto result = Sync(server);
      EXPECT_TRUE(result.ok()) << result.status();
      if (!result.ok()) return NamedTensors();
      EXPECT_EQ(result->version, step + 1);
      // The first server knows no model.
      EXPECT_EQ(result->num_pieces, step == 0 ? 0 : kPieces);
    }
    EXPECT_TRUE(server.Kill().ok());
    return WeightsOf(0);
  };
  const NamedTensors disturbed = run(true);
  ExpectSame(disturbed, run(false));
}

TEST_F(PiecewiseSyncTest, WorkersThatCannotAreToldWhatTheyLack) {
  auto plain = cluster_.CreateActor<PlainWorker>({.resources = {.cpu = 0}});
  ASSERT_TRUE(plain.ok());
  handles_ = {*plain};
  EXPECT_THAT(
      Sync(StartServer({.piece_bytes = kPieceBytes})).status().ToString(),
      AllOf(HasSubstr("FAILED_PRECONDITION"),
            HasSubstr("worker 0 (PlainWorker"),
            HasSubstr("has no method SendWeights"),
            HasSubstr("weights in pieces")));
}

TEST_F(PiecewiseSyncTest, WrongOptionsAreErrorsOnTheDriver) {
  const auto error = [&](const std::string& strategy,
                         const ServerOptions& options) {
    const auto server = CreateParameterServer(cluster_, strategy, {}, options);
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
    return server.status().ToString();
  };
  EXPECT_THAT(error("average", {.piece_bytes = -1}),
              HasSubstr("piece_bytes = -1"));
  EXPECT_THAT(error("average", {.num_shards = 2, .piece_bytes = 1 << 20}),
              HasSubstr("not for several shards"));
  EXPECT_THAT(error("average", {.to_workers = {.method = Compression::kInt8},
                                .piece_bytes = 1 << 20}),
              HasSubstr("or compressed weights"));
  EXPECT_THAT(error("sgd", {.piece_bytes = 1 << 20}),
              HasSubstr("have no effect"));
}

// Trains and synchronises; kills the server `kills` times, somewhere.
class PiecewiseSurvivalTest : public PiecewiseSyncTest,
                              public testing::WithParamInterface<std::string> {
 protected:
  NamedTensors Run(const std::string& name, int kills, uint64_t seed) {
    constexpr int kSyncs = 20;
    Killer killer(&nodes_, kills, kSyncs, seed);
    StartWorkers(3);
    const auto server = StartServer(
        {.state_dir = Folder(name), .piece_bytes = kPieceBytes}, GetParam());
    EXPECT_TRUE(server.WaitReady().ok());
    int in_pieces = 0;
    for (int sync = 0; sync < kSyncs; ++sync) {
      const auto result = SyncUnderFire(server, sync, &killer, {server},
                                        absl::Milliseconds(25));
      if (!result.ok()) return {};
      in_pieces += result->num_pieces > 0;
    }
    EXPECT_EQ(killer.kills_left(), 0);
    if (kills == 0) {
      EXPECT_EQ(in_pieces, kSyncs - 1);
    }
    return EndRun(server, kSyncs);
  }
};

TEST_P(PiecewiseSurvivalTest, KilledTwelveTimesItEndsWhereItWouldHave) {
  ExpectSurvives(12,
                 [this](const std::string& folder, int kills, uint64_t seed) {
                   return Run(folder, kills, seed);
                 });
}
INSTANTIATE_TEST_SUITE_P(Strategies, PiecewiseSurvivalTest,
                         testing::Values("average", "momentum", "fedadam"));

}  // namespace
}  // namespace miniray::ps

TEST_CLUSTER_MAIN()
