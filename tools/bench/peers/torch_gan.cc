#include "tools/bench/peers/torch_gan.h"

#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace miniray::bench {
namespace {

// What plain_models.cc has as "mlp_gan", in Python. The version first.
constexpr char kScript[] = R"(
import ctypes, signal, sys, time

# Whatever it is doing, it does not outlive the benchmark.
ctypes.CDLL(None).prctl(1, signal.SIGKILL)

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit()
print(torch.__version__, flush=True)
torch.set_num_threads(1)

def generator_layers(inputs, outputs):
    return [nn.Linear(inputs, outputs), nn.ReLU(), nn.BatchNorm1d(outputs)]

def discriminator_layers(inputs, outputs):
    return [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2), nn.Dropout(0.3)]

generator = nn.Sequential(
    *generator_layers(100, 256), *generator_layers(256, 512),
    *generator_layers(512, 1024), nn.Linear(1024, 3072), nn.Tanh())
discriminator = nn.Sequential(
    nn.Flatten(), *discriminator_layers(3072, 1024),
    *discriminator_layers(1024, 512), *discriminator_layers(512, 256),
    nn.Linear(256, 1))
generator_optimizer = torch.optim.Adam(
    generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
discriminator_optimizer = torch.optim.Adam(
    discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
loss_of = nn.BCEWithLogitsLoss()

def train_step(images):
    real = images.float().div_(127.5).sub_(1)
    ones = torch.ones(len(real), 1)
    fake = generator(torch.randn(len(real), 100))
    discriminator_optimizer.zero_grad()
    discriminator_loss = (loss_of(discriminator(real), ones) +
                          loss_of(discriminator(fake.detach()), 1 - ones)) / 2
    discriminator_loss.backward()
    discriminator_optimizer.step()
    generator_optimizer.zero_grad()
    generator_loss = loss_of(discriminator(fake), ones)
    generator_loss.backward()
    generator_optimizer.step()
    return discriminator_loss.item() + generator_loss.item()

batches = []
for line in sys.stdin:
    verb, name, number = line.split()
    if name != "mlp_gan":
        sys.exit("no model " + name)
    if verb == "open":
        batches = [torch.randint(256, (int(number), 3, 32, 32),
                                 dtype=torch.uint8) for _ in range(4)]
        for batch in batches[:2]:
            train_step(batch)
        answer = sum(p.numel() for network in (generator, discriminator)
                     for p in network.parameters())
    else:
        start = time.perf_counter()
        for i in range(int(number)):
            train_step(batches[i % 4])
        answer = (time.perf_counter() - start) * 1e3 / int(number)
    print(answer, flush=True)
)";

constexpr absl::Duration kPatience = absl::Minutes(1);

}  // namespace

absl::StatusOr<TorchGan> StartTorchGan() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    auto child = Child::StartProgram("PyTorch", python, {"-c", kScript},
                                     {{"OMP_NUM_THREADS", "1"}});
    if (!child.ok()) continue;
    const absl::StatusOr<std::string> version = (*child)->Receive(kPatience);
    if (version.ok()) return TorchGan{*version, *std::move(child)};
    // It has ended: it has none.
    if (!absl::IsUnavailable(version.status())) return version.status();
  }
  return TorchGan();
}

}  // namespace miniray::bench
