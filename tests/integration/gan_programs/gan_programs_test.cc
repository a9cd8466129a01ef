// The train and generate programs as a user runs them.

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ml/gan/model_file.h"
#include "nlohmann/json.hpp"
#include "runtime/base/files.h"
#include "tests/integration/process_tools.h"
#include "tests/ml/gan/gan_testutil.h"

namespace miniray::ml {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class GanProgramsTest : public ::testing::Test {
 protected:
  RunResult Train(std::vector<std::string> flags) {
    flags.insert(flags.begin(), BuiltProgram("ml/train"));
    return tree_.Run(std::move(flags));
  }

  RunResult Generate(std::vector<std::string> flags) {
    flags.insert(flags.begin(), BuiltProgram("ml/generate"));
    return tree_.Run(std::move(flags));
  }

  // Trains, in a moment, on a few made-up images.
  RunResult TrainTiny(std::vector<std::string> flags) {
    flags.insert(flags.end(), TinyFlags().begin(), TinyFlags().end());
    return Train(std::move(flags));
  }

  static const std::vector<std::string>& TinyFlags() {
    static const auto* const flags = new std::vector<std::string>(
        {"--dataset=synthetic", "--limit=64", "--batch-size=16",
         "--latent-dim=8", "--threads=1"});
    return *flags;
  }

  std::string Folder(const std::string& name) const {
    return absl::StrCat(tree_.folder(), "/", name);
  }

  static void ExpectOneLine(const RunResult& result, int exit_code,
                            const std::string& text) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }

  ProcessTree tree_;
};

TEST_F(GanProgramsTest, SingleProcessTrainsSavesAndGenerates) {
  const std::string models = Folder("models");
  const RunResult trained =
      TrainTiny({"--epochs", "2", "--save-dir", models, "--mode=single"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.err, IsEmpty());
  EXPECT_THAT(trained.out, HasSubstr("epoch 1/2  g_loss "));
  EXPECT_THAT(trained.out, HasSubstr("epoch 2/2  g_loss "));
  EXPECT_THAT(trained.out, HasSubstr("\nModel: " + models + "/generator.pt\n"));
  EXPECT_THAT(trained.out, HasSubstr("Picture: " + models + "/samples.png\n"));
  // No terminal, so no bar.
  EXPECT_EQ(trained.out.find('\r'), std::string::npos);

  // The same again gives the same model.
  const std::string again = Folder("again");
  ASSERT_EQ(TrainTiny({"--epochs=2", "--save_dir=" + again}).exit_code, 0);
  EXPECT_EQ(*ReadFile(models + "/generator.pt"),
            *ReadFile(again + "/generator.pt"));

  const std::string images = Folder("images");
  const RunResult generated =
      Generate({"--model", models + "/generator.pt", "--output", images});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_THAT(generated.out, HasSubstr("Seed: "));
  EXPECT_THAT(generated.out, HasSubstr("Picture: " + images + "/grid.png\n"));
  EXPECT_TRUE(std::filesystem::exists(images + "/image_009.png"));
  EXPECT_FALSE(std::filesystem::exists(images + "/image_010.png"));
}

TEST_F(GanProgramsTest, ConditionalDcganGeneratesByClass) {
  const std::string models = Folder("models");
  const RunResult trained = TrainTiny(
      {"--epochs=2", "--save-dir", models, "--architecture=dcgan",
       "--conditional", "--loss=hinge", "--ema_decay=0.9", "--sample_every=2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_TRUE(std::filesystem::exists(models + "/samples/epoch-0002.png"));
  EXPECT_FALSE(std::filesystem::exists(models + "/samples/epoch-0001.png"));
  // Two epochs of four batches: 0.9^8 = 0.43, and 0.01^(1/8) = 0.562.
  EXPECT_THAT(trained.out,
              HasSubstr("average will still be 43% initial weights after 8 "
                        "steps; take a smaller --ema-decay, such as 0.56\n"));

  const auto generate = [&](const std::string& name,
                            const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"--model", models + "/generator.pt",
                                    "--seed=3", "--num-images=4",
                                    "--output=" + Folder(name)};
    all.insert(all.end(), flags.begin(), flags.end());
    const RunResult result = Generate(all);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return *ReadFile(Folder(name) + "/image_000.png");
  };
  const std::string by_name = generate("by_name", {"--class", "class 3"});
  EXPECT_EQ(generate("by_number", {"--class=3"}), by_name);
  EXPECT_NE(generate("other", {"--class=4"}), by_name);
  ExpectOneLine(
      Generate({"--model", models + "/generator.pt", "--class=cat"}), 1,
      "--class: the model has no class 'cat'; expected 0 to 9 or one of class");

  // Where the folder for pictures cannot be, training goes on without.
  const std::string again = Folder("again");
  std::filesystem::create_directories(again);
  ASSERT_TRUE(WriteFileAtomically(again + "/samples", "a file").ok());
  const RunResult warned =
      TrainTiny({"--epochs=1", "--save-dir", again, "--sample-every=1"});
  EXPECT_EQ(warned.exit_code, 0) << warned.err;
  EXPECT_THAT(warned.out, HasSubstr("Warning: no picture after epoch 1"));
  EXPECT_TRUE(std::filesystem::exists(again + "/generator.pt"));
  ExpectOneLine(Generate({"--model", again + "/generator.pt", "--class=0"}), 1,
                "--class: the model has no classes");
}

TEST_F(GanProgramsTest, DistributedWorkersEndAlikeAndGenerateAlike) {
  const std::string models = Folder("models");
  const RunResult trained =
      TrainTiny({"--epochs=2", "--save-dir", models, "--mode=distributed",
                 "--workers=2", "--sync-strategy=momentum", "--momentum=0.5"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("on 2 workers, momentum every 5 epochs"));
  EXPECT_THAT(trained.out, HasSubstr("synced\n"));
  const std::string average = *ReadFile(models + "/generator.pt");
  EXPECT_EQ(*ReadFile(models + "/worker_0/generator.pt"), average);
  EXPECT_EQ(*ReadFile(models + "/worker_1/generator.pt"), average);
  EXPECT_TRUE(
      LoadGanModel(models + "/discriminator.pt", GanNetwork::kDiscriminator)
          .ok());

  const std::vector<std::string> flags = {"--model", models + "/generator.pt",
                                          "--num-images=150", "--seed=7"};
  std::vector<std::string> single = flags;
  single.insert(single.end(), {"--output", Folder("single")});
  std::vector<std::string> distributed = flags;
  distributed.insert(distributed.end(),
                     {"--output", Folder("distributed"), "--distributed",
                      "--workers=2", "--batch-size=20"});
  ASSERT_EQ(Generate(single).exit_code, 0);
  ASSERT_EQ(Generate(distributed).exit_code, 0);
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(Folder("single"))) {
    const std::string name = entry.path().filename();
    EXPECT_EQ(*ReadFile(entry.path()),
              *ReadFile(Folder("distributed") + "/" + name))
        << name;
    ++files;
  }
  EXPECT_EQ(files, 151);
  // The clusters that the programs started have gone with them.
  EXPECT_TRUE(tree_.WaitForCount(0));
}

TEST_F(GanProgramsTest, TenThousandImagesAreNotInMemoryTogether) {
  GanOptions options = SmallGanOptions();
  options.shape = {3, 32, 32};
  const std::string model = Folder("generator.pt");
  ASSERT_TRUE(SaveGanModel(model, SmallGenerator(options)).ok());
  const auto peak_megabytes = [&](int images, std::vector<std::string> flags) {
    const std::string folder = Folder(absl::StrCat("images-", images));
    flags.insert(flags.end(), {"--model", model, "--seed=7", "--output", folder,
                               absl::StrCat("--num-images=", images)});
    const RunResult result = Generate(std::move(flags));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto files =
        std::distance(std::filesystem::directory_iterator(folder), {});
    EXPECT_EQ(files, images + 1);  // With the grid.
    std::filesystem::remove_all(folder);
    return static_cast<double>(result.peak_bytes) / 1e6;
  };
  // As floats, 10,000 of them are 123 MB.
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>(),
        std::vector<std::string>{"--distributed", "--workers=2"}}) {
    const double few = peak_megabytes(500, flags);
    EXPECT_GT(few, 10);
    EXPECT_LT(peak_megabytes(10000, flags), few + 50) << few;
  }
}

TEST_F(GanProgramsTest, FlagsOfTheTrainingStepReachTheWorkers) {
  const std::string runs = Folder("runs");
  const RunResult result =
      TrainTiny({"--mode=distributed", "--workers=2", "--epochs=3",
                 "--sync-interval=1", "--storage-path=" + runs, "--name=run",
                 "--save-dir=" + Folder("models"), "--lr=0.001",
                 "--lr-schedule=linear", "--warmup-epochs=1", "--clip-norm=0.5",
                 "--accumulate=2", "--precision=bfloat16", "--device=cpu"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string history = *ReadFile(runs + "/run/history.jsonl");
  std::vector<double> rates;
  for (const absl::string_view line :
       absl::StrSplit(history, '\n', absl::SkipEmpty())) {
    const auto epoch = nlohmann::json::parse(line);
    rates.push_back(epoch["metrics"]["lr"].get<double>());
    EXPECT_GT(epoch["metrics"]["g_gradient_norm"].get<double>(), 0);
  }
  // Warm: half, then all of it, then half of the two that are left.
  ASSERT_EQ(rates.size(), 3u);
  EXPECT_DOUBLE_EQ(rates[0], 0.0005);
  EXPECT_DOUBLE_EQ(rates[1], 0.001);
  EXPECT_DOUBLE_EQ(rates[2], 0.0005);
}

TEST_F(GanProgramsTest, AKilledTrainingGoesOnAndEndsAsIfNothingHadBeen) {
  const std::vector<std::string> flags = {
      "--mode=distributed",   "--workers=2",        "--epochs=8",
      "--sync-interval=3",    "--sharding=strided", "--name=run",
      "--checkpoint-every=1", "--num-to-keep=2",    "--resume=auto"};
  const auto with = [&](const std::string& models, const std::string& runs) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"--save-dir=" + Folder(models),
                           "--storage-path=" + Folder(runs)});
    return all;
  };
  const RunResult whole = TrainTiny(with("whole", "whole_runs"));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("Run folder: "));

  std::vector<std::string> argv = with("killed", "runs");
  argv.insert(argv.begin(), BuiltProgram("ml/train"));
  argv.insert(argv.end(), TinyFlags().begin(), TinyFlags().end());
  const auto child = tree_.Start(argv);
  std::string line;
  do {
    line = child->ReadLine();
    ASSERT_FALSE(line.empty()) << *ReadFile(child->error_file());
  } while (!absl::StrContains(line, "epoch 4/8"));
  // That of epoch 3 may be half written; that of epoch 2 is on the disk, since
  // the next one waits for it.
  child->Signal(SIGKILL);
  EXPECT_EQ(child->Wait(), 128 + SIGKILL);
  EXPECT_TRUE(tree_.WaitForCount(0));
  EXPECT_FALSE(std::filesystem::exists(Folder("killed/generator.pt")));

  const RunResult resumed = TrainTiny(with("killed", "runs"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(resumed.out.find("epoch 1/8"), std::string::npos);
  EXPECT_THAT(resumed.out, HasSubstr("epoch 8/8"));
  for (const char* file : {"/generator.pt", "/discriminator.pt"}) {
    EXPECT_EQ(*ReadFile(Folder("killed") + file),
              *ReadFile(Folder("whole") + file))
        << file;
  }
}

// Ctrl-C ends training after the epoch that runs: in the last one it would end
// anyway, and what was trained is saved.
TEST_F(GanProgramsTest, ASignalInTheLastEpochChangesNothing) {
  const std::string models = Folder("models");
  const auto child = tree_.Start(
      {BuiltProgram("ml/train"), "--mode=distributed", "--workers=1",
       "--epochs=2", "--dataset=synthetic", "--limit=4000", "--threads=1",
       "--storage-path=" + Folder("runs"), "--name=run", "--checkpoint-every=1",
       "--save-dir=" + models});
  // Written while the second epoch is trained, which takes a while.
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!std::filesystem::exists(Folder("runs/run/checkpoint_000001"))) {
    ASSERT_LT(absl::Now(), deadline) << *ReadFile(child->error_file());
    absl::SleepFor(absl::Milliseconds(5));
  }
  child->Signal(SIGINT);
  EXPECT_EQ(child->Wait(), 0) << *ReadFile(child->error_file());
  EXPECT_TRUE(
      LoadGanModel(models + "/generator.pt", GanNetwork::kGenerator).ok());
  EXPECT_THAT(*ReadFile(Folder("runs/run/result.json")), HasSubstr("SIGINT"));
}

TEST_F(GanProgramsTest, TheEmbeddedClusterHasTheGpusThatAreAskedFor) {
  // Where there are none, it is LibTorch that says so.
  const RunResult result = TrainTiny(
      {"--epochs=1", "--save-dir", Folder("models"), "--mode=distributed",
       "--workers=2", "--num-gpus-per-worker=0.5", "--device=cuda"});
  if (result.exit_code == 0) return;
  EXPECT_THAT(result.err, HasSubstr("LibTorch finds no CUDA device"));
  EXPECT_THAT(result.err, HasSubstr("CUDA_VISIBLE_DEVICES ('0')"));
}

TEST_F(GanProgramsTest, FlagsOfTheRunFolderThatCannotBeMeant) {
  const std::string runs = "--storage-path=" + Folder("runs");
  ExpectOneLine(Train({runs}), 2, "--mode=single");
  for (const char* flag :
       {"--workers=2", "--sharding=strided", "--sync-moments=reset", "--name=x",
        "--num-cpus-per-worker=2", "--num-gpus-per-worker=1"}) {
    const std::string name(flag, std::string(flag).find('='));
    ExpectOneLine(Train({flag}), 2, name + " has no effect with --mode=single");
  }
  for (const char* flag : {"--name=x", "--checkpoint-every=1",
                           "--num-to-keep=1", "--resume=auto"}) {
    ExpectOneLine(Train({"--mode=distributed", flag}), 2,
                  "has no effect without --storage-path");
  }
  ExpectOneLine(Train({"--mode=distributed", runs, "--num-to-keep=1"}), 2,
                "without --checkpoint-every");
  ExpectOneLine(Train({"--mode=distributed", runs, "--resume=auto"}), 2,
                "--resume=auto needs --name");
  ExpectOneLine(Train({"--mode=distributed", "--job-id=my run"}), 2,
                "--job-id: 'my run' cannot name a job: 1 to 64 letters");
  ExpectOneLine(Train({"--sharding=function"}), 2, "--sharding is 'function'");
  ExpectOneLine(Train({"--sharding=random"}), 2, "expected one of contiguous");
}

TEST_F(GanProgramsTest, OutputThatReachesNobodyIsAnError) {
  for (const char* program : {"ml/train", "ml/generate"}) {
    const RunResult result =
        tree_.Run({"/bin/sh", "-c", "exec \"$0\" --help > /dev/full",
                   BuiltProgram(program)});
    EXPECT_EQ(result.exit_code, 1) << program;
    EXPECT_THAT(result.err, HasSubstr("cannot write the output")) << program;
  }
}

TEST_F(GanProgramsTest, BadUsageExitsWith2) {
  ExpectOneLine(
      Train({"--epoch=3"}), 2,
      "train: unknown flag --epoch; did you mean --epochs? See --help");
  ExpectOneLine(Train({"--epochs"}), 2, "--epochs needs a value");
  for (const char* gpus : {"-1", "1.5", "nan"}) {
    ExpectOneLine(Train({"--mode=distributed",
                         absl::StrCat("--num-gpus-per-worker=", gpus)}),
                  2, "expected a number from 0 to 1, or a whole one");
  }
  ExpectOneLine(Train({"--epochs=many"}), 2, "expected a whole number");
  ExpectOneLine(Train({"--epochs=0"}), 2, "--epochs is 0");
  ExpectOneLine(Train({"--mode=both"}), 2, "single or distributed");
  ExpectOneLine(Train({"--mode=distributed", "--workers=0"}), 2,
                "--workers is 0; expected 1 or more");
  ExpectOneLine(Train({"--dataset=imagenet"}), 2,
                "--dataset is 'imagenet'; expected one of cifar10");
  ExpectOneLine(Train({"--sync-strategy=best"}), 2, "best");
  ExpectOneLine(Train({"--sync-strategy=momentum", "--momentum=1.7"}), 2,
                "momentum");
  ExpectOneLine(Train({"--momentum=0.5"}), 2, "momentum");
  ExpectOneLine(Train({"--momentum=0.9"}), 2, "momentum");
  ExpectOneLine(Train({"--sync-strategy=fedavgm", "--momentum=1"}), 2,
                "must be in [0, 1)");
  ExpectOneLine(Train({"--momentum=much"}), 2, "expected a number");
  ExpectOneLine(Train({"--sync-options=x"}), 2, "expected name=value");
  ExpectOneLine(Train({"--mode=distributed", "--sync-moments=sum"}), 2,
                "--sync-moments: Adam's moments are 'sum'; expected keep, "
                "average or reset");
  ExpectOneLine(Train({"--batch-size=1"}), 2, "--batch-size is 1");
  ExpectOneLine(Train({"--lr=0"}), 2, "--lr is 0");
  ExpectOneLine(Train({"--architecture=cnn"}), 2,
                "--architecture: the architecture is 'cnn'; expected mlp or");
  ExpectOneLine(Train({"--architecture=dcgan", "--dataset=image-folder",
                       "--data-dir=x", "--image-size=50"}),
                2, "nearest: 48 and 56");
  ExpectOneLine(
      Train({"--dataset=image-folder", "--data-dir=x", "--image-channels=2"}),
      2, "--image-channels is 2; expected 1 or 3");
  ExpectOneLine(
      Train({"--dataset=image-folder", "--data-dir=x", "--image-size=2000"}), 2,
      "--image-size: images are 3x2000x2000 values");
  ExpectOneLine(Train({"--features=x"}), 2,
                "--features has no effect without --eval-fid-every");
  ExpectOneLine(Train({"--fid-count=100"}), 2,
                "--fid-count has no effect without --eval-fid-every");
  ExpectOneLine(Train({"--eval-fid-every=2"}), 2, "one of --features");
  ExpectOneLine(Train({"--eval-fid-every=-1"}), 2, "--eval-fid-every is -1");
  ExpectOneLine(Train({"--eval-fid-every=2", "--features=x", "--fid-size=224"}),
                2, "--fid-size has no effect without --fid-features");
  ExpectOneLine(Train({"--eval-fid-every=2", "--features=x", "--fid-count=1"}),
                2, "--fid-count is 1");
  ExpectOneLine(Train({"--eval-fid-every=2", "--features=/no/such/file"}), 1,
                "/no/such/file");
  ExpectOneLine(Train({"--lazy"}), 2,
                "--lazy has no effect without --dataset=image-folder");
  ExpectOneLine(Train({"--ema-decay=1"}), 2, "--ema-decay is 1");
  ExpectOneLine(Train({"--sample-every=-1"}), 2, "--sample-every is -1");
  ExpectOneLine(Train({"--loss=wgan"}), 2,
                "--loss: the loss is 'wgan'; expected non_saturating or hinge");
  ExpectOneLine(Train({"--loss=hinge", "--label-smoothing=0.1"}), 2,
                "--label-smoothing has no effect with --loss=hinge");
  ExpectOneLine(Train({"--accumulate=0"}), 2, "--accumulate is '0'");
  ExpectOneLine(Train({"--precision=half"}), 2, "float32, bfloat16 or float16");
  ExpectOneLine(Train({"--clip-norm=-1"}), 2, "--clip-norm is '-1'");
  ExpectOneLine(Train({"--lr-schedule=step"}), 2, "expected constant, linear");
  ExpectOneLine(Train({"--lr-schedule=one_cycle", "--epochs=2"}), 2,
                "--lr-schedule: ");
  ExpectOneLine(Train({"--warmup-epochs=10"}), 2, "expected 0 to 9");
  ExpectOneLine(Train({"--on-non-finite=stop"}), 2, "expected error or skip");
  for (const char* device : {"gpu", "cuda:x", "cuda:-1"}) {
    ExpectOneLine(Train({"--device", device}), 2,
                  "expected auto, cpu, cuda or cuda:N");
  }
  ExpectOneLine(Train({"epochs"}), 2, "unexpected argument 'epochs'");

  ExpectOneLine(Generate({}), 2, "--model is required");
  ExpectOneLine(Generate({"--model=x", "--num-images=0"}), 2,
                "--num-images is 0");
  ExpectOneLine(Generate({"--model=x", "--workers=0"}), 2, "--workers is 0");
  ExpectOneLine(Generate({"--model=x", "--grid=0"}), 2, "--grid is 0");
  ExpectOneLine(Generate({"--model=x", "--address=127.0.0.1:1"}), 2,
                "--address has no effect without --distributed");
  ExpectOneLine(Generate({"--model=x", "--workers=2"}), 2,
                "--workers has no effect without --distributed");
}

TEST_F(GanProgramsTest, HelpExitsWith0) {
  for (const RunResult& help : {Train({"--help"}), Generate({"--help"})}) {
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr("Examples:"));
    EXPECT_THAT(help.out, HasSubstr("--address=HOST:PORT"));
    EXPECT_THAT(help.err, IsEmpty());
  }
}

TEST_F(GanProgramsTest, FailuresExitWith1AndLeaveNothing) {
  const std::string save = Folder("save");
  ExpectOneLine(Train({"--address=127.0.0.1:1", "--save-dir", save}), 2,
                "--mode=distributed");
  ExpectOneLine(Train({"--dataset=cifar10", "--data-dir=/no/such/folder",
                       "--save-dir", save}),
                1, "/no/such/folder");
  EXPECT_FALSE(std::filesystem::exists(save));
  ExpectOneLine(Train({"--mode=distributed", "--workers=2", "--dataset=cifar10",
                       "--data-dir=/no/such/folder", "--save-dir", save}),
                1, "/no/such/folder");
  EXPECT_FALSE(std::filesystem::exists(save));
  // A file where the folder should be.
  const std::string file = Folder("file");
  ASSERT_TRUE(WriteFileAtomically(file, "x").ok());
  ExpectOneLine(TrainTiny({"--save-dir", file + "/models"}), 1, "--save-dir");

  ExpectOneLine(Generate({"--model", Folder("missing.pt")}), 1, "missing.pt");
  const std::string output = Folder("output");
  ExpectOneLine(Generate({"--model", file, "--output", output}), 1,
                "not a generator that `train` saved");
  EXPECT_FALSE(std::filesystem::exists(output));
}

}  // namespace
}  // namespace miniray::ml
