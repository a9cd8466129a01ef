#include "tests/ps/survival.h"

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/ps/tensors.h"

namespace miniray::ps {

bool Killer::IsTime() {
  const auto rounds_left = static_cast<uint64_t>(rounds_--);
  if (static_cast<int>(random_() % rounds_left) >= kills_left_) return false;
  --kills_left_;
  return true;
}

void Killer::Kill(const AnyActorHandle& actor, absl::Duration within) {
  const int64_t pid = nodes_->Info(actor).pid();
  absl::SleepFor(within * (static_cast<double>(random_() % 1000) / 1000));
  ASSERT_EQ(kill(static_cast<pid_t>(pid), SIGKILL), 0);
  ASSERT_TRUE(Eventually([&] {
    return nodes_->Info(actor).pid() != pid && actor.WaitReady().ok();
  }));
}

void ExpectSurvives(
    int kills,
    const std::function<NamedTensors(const std::string& folder, int kills,
                                     uint64_t seed)>& run) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  const NamedTensors undisturbed = run("undisturbed", 0, seed);
  const NamedTensors killed = run("killed", kills, seed);
  ASSERT_FALSE(undisturbed.empty());
  ASSERT_EQ(killed.size(), undisturbed.size());
  for (size_t i = 0; i < killed.size(); ++i) {
    EXPECT_TRUE(SameBits(killed[i].second, undisturbed[i].second))
        << killed[i].first;
  }
}

}  // namespace miniray::ps
