#include "tools/bench/peers/torch_ddp.h"

#include <filesystem>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/child.h"

namespace miniray::bench {
namespace {

// One line: the version, if torchrun is there too.
constexpr char kVersionScript[] = R"(
try:
    import torch, torch.distributed.run
    print(torch.__version__)
except ImportError:
    pass
)";

// What tools/bench/resnet20.cc and resnet_training.cc say, in Python.
constexpr char kScript[] = R"(
import ctypes, signal, sys, time

# Whatever it is doing, it does not outlive torchrun.
ctypes.CDLL(None).prctl(1, signal.SIGKILL)

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH_SIZE, WARM_UP, STEPS = map(int, sys.argv[1:])
NUM_BATCHES = 8

def convolution(channels_in, channels, stride):
    return nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1,
                     bias=False)

class Block(nn.Module):
    def __init__(self, channels_in, channels):
        super().__init__()
        self.new_channels = channels - channels_in
        self.first = convolution(channels_in, channels,
                                 2 if self.new_channels else 1)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = convolution(channels, channels, 1)
        self.second_norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        y = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        if self.new_channels:
            before = self.new_channels // 2
            x = F.pad(x[:, :, ::2, ::2],
                      (0, 0, 0, 0, before, self.new_channels - before))
        return F.relu(y + x)

class ResNet20(nn.Module):
    def __init__(self):
        super().__init__()
        channels = 16
        self.first = convolution(3, channels, 1)
        self.first_norm = nn.BatchNorm2d(channels)
        blocks = []
        for stage_channels in (16, 32, 64):
            for _ in range(3):
                blocks.append(Block(channels, stage_channels))
                channels = stage_channels
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(channels, 10)

    def forward(self, images):
        x = self.blocks(F.relu(self.first_norm(self.first(images))))
        return self.output(x.mean((2, 3)))

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(ResNet20())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
torch.manual_seed(100 + dist.get_rank())
batches = [(torch.randn(BATCH_SIZE, 3, 32, 32),
            torch.randint(10, (BATCH_SIZE,))) for _ in range(NUM_BATCHES)]

def train(first, steps):
    start = time.perf_counter()
    for step in range(first, first + steps):
        images, labels = batches[step % NUM_BATCHES]
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return steps * BATCH_SIZE / (time.perf_counter() - start)

train(0, WARM_UP)
pace = torch.tensor(train(WARM_UP, STEPS), dtype=torch.float64)
dist.all_reduce(pace)
if dist.get_rank() == 0:
    print(pace.item(), sum(p.numel() for p in model.parameters()), flush=True)
)";

constexpr absl::Duration kPatience = absl::Minutes(10);

// What `python` says of its PyTorch; empty: it has none, or is not there.
std::string VersionOf(const std::string& python) {
  const auto child =
      Child::StartProgram(python, python, {"-c", kVersionScript});
  if (!child.ok()) return "";
  return (*child)->Receive(kPatience).value_or("");
}

}  // namespace

std::optional<TorchDdp> TorchDdp::Find() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    const std::string version = VersionOf(python);
    if (!version.empty()) return TorchDdp(python, version);
  }
  return std::nullopt;
}

absl::StatusOr<ResNetPace> TorchDdp::Train(const ResNetWork& work) const {
  // torchrun leaves folders of logs behind.
  MR_ASSIGN_OR_RETURN(const std::string runtime, RuntimeDirectory());
  const std::string folder = absl::StrCat(runtime, "/", NewId("torchrun"));
  MR_RETURN_IF_ERROR(MakeDirectories(folder, 0700));
  const absl::Cleanup remove = [&] {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  };
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<Child> child,
      Child::StartProgram(
          "torchrun", python_,
          {"-m", "torch.distributed.run",
           absl::StrCat("--nproc_per_node=", work.ranks),
           // A free port.
           "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0",
           "--monitor_interval=0.2",
           // For rank 9, so for none: with Python 3.11, PyTorch 1.13 takes the
           // default, which says the same, for an error.
           "--redirects=9:1", "--tee=9:1",
           // What follows is a program.
           "--no_python", python_, "-c", kScript, absl::StrCat(work.batch_size),
           absl::StrCat(work.warm_up), absl::StrCat(work.steps)},
          {{"OMP_NUM_THREADS", "1"}, {"TMPDIR", folder}}));
  MR_ASSIGN_OR_RETURN(const std::string line, child->Receive(kPatience));
  std::istringstream words(line);
  ResNetPace pace;
  if (!(words >> pace.samples_per_second >> pace.num_parameters)) {
    return absl::InternalError(absl::StrCat("torchrun answered: ", line));
  }
  // All of its processes end before the next measurement begins.
  const absl::Status end = child->Receive(kPatience).status();
  if (absl::IsUnavailable(end)) return pace;
  if (!end.ok()) return end;
  return absl::InternalError("torchrun has said more than one line");
}

}  // namespace miniray::bench
