// Signals that ask a training to end.

#ifndef MINIRAY_TRAIN_STOP_SIGNALS_H_
#define MINIRAY_TRAIN_STOP_SIGNALS_H_

namespace miniray::train {

// Catches SIGTERM and SIGINT while it lives, those that have their default
// action: of the process, whatever the thread. The first one is noted; from the
// second on they do what they did before. Several may live at once; they see
// the same signal.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The signal that came first since there is any object; 0: none.
  static int Received();
  // Its name, "SIGTERM" or "SIGINT".
  static const char* Name();
};

}  // namespace miniray::train

#endif  // MINIRAY_TRAIN_STOP_SIGNALS_H_
