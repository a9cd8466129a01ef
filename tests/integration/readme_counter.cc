// The first program of README.md, to the letter; readme_test compares.
#include <iostream>

#include "runtime/api/miniray.h"

class Counter {
 public:
  explicit Counter(int64_t start) : value_(start) {}
  int64_t Add(int64_t n) { return value_ += n; }

 private:
  int64_t value_;
};
MINIRAY_ACTOR(Counter, Constructor<int64_t>, &Counter::Add);

absl::Status Run() {
  // --address or MINIRAY_ADDRESS, else a small cluster of its own.
  MR_ASSIGN_OR_RETURN(auto cluster, miniray::Cluster::Connect());
  MR_ASSIGN_OR_RETURN(auto counter,
                      cluster.CreateActor<Counter>({.name = "c"}, 5));
  // Returns at once; Get waits for the result.
  miniray::ObjectRef<int64_t> ref = counter.Call<&Counter::Add>(3);
  MR_ASSIGN_OR_RETURN(int64_t value, ref.Get(absl::Seconds(30)));
  std::cout << value << "\n";
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  miniray::Init(argc, argv);  // First thing in main.
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
