// Draws a progress bar as the test wants it:
//   lines  others write to stderr meanwhile; then it waits for a signal
//   loop   draws again and again until a signal ends it
//   end    draws, and ends

#include <glog/logging.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ml/cli/progress_bar.h"

int main(int argc, char** argv) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv[0]);
  const std::string what = argc > 1 ? argv[1] : "";
  miniray::ml::ProgressBar bar({.min_interval = absl::ZeroDuration(),
                                .line_interval = absl::Milliseconds(50),
                                .clear_on_signals = true});
  std::cout << (bar.draws() ? "draws" : "prints") << std::endl;
  if (what == "lines") {
    bar.Update(0.5, "epoch 1/2", "first");
    LOG(WARNING) << "a warning";
    std::cerr << "from "
              << "cerr " << 7 << std::endl;
    std::fprintf(stderr, "half ");
    std::fprintf(stderr, "a line\nand another\n");
    bar.Print("one that stays");
    bar.Update(0.75, "epoch 2/2", "last");
    pause();
  }
  while (what == "loop") {
    bar.Update(0.25, "epoch 1/4", "1234 images/s  loss 0.5  eta 1:23");
    absl::SleepFor(absl::Milliseconds(10));
  }
  bar.Update(0.5, "epoch 1/2", "last");
  std::fprintf(stderr, "unfinished");
  return 0;
}
