#include "tools/bench/peers/open_mpi.h"

#include <dlfcn.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/child.h"
#include "tools/bench/peers/memory.h"

namespace miniray::bench {
namespace {

constexpr char kLibrary[] = "libmpi.so.40";

// What is used of Open MPI's ABI, where handles are addresses of objects.
struct Mpi {
  int (*init)(int*, char***) = nullptr;
  int (*finalize)() = nullptr;
  int (*rank)(void* comm, int*) = nullptr;
  int (*size)(void* comm, int*) = nullptr;
  int (*barrier)(void* comm) = nullptr;
  int (*broadcast)(void*, int, void* type, int root, void* comm) = nullptr;
  int (*all_reduce)(const void*, void*, int, void* type, void* op,
                    void* comm) = nullptr;
  void* world = nullptr;
  void* type_float = nullptr;
  void* type_byte = nullptr;
  void* type_double = nullptr;
  void* sum = nullptr;
  void* max = nullptr;

  bool Open() {
    void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      std::cerr << "Open MPI: " << dlerror() << "\n";
      return false;
    }
    bool all = true;
    auto find = [&](const char* name, auto* out) {
      *out =
          reinterpret_cast<std::decay_t<decltype(*out)>>(dlsym(library, name));
      all = all && *out != nullptr;
    };
    find("MPI_Init", &init);
    find("MPI_Finalize", &finalize);
    find("MPI_Comm_rank", &rank);
    find("MPI_Comm_size", &size);
    find("MPI_Barrier", &barrier);
    find("MPI_Bcast", &broadcast);
    find("MPI_Allreduce", &all_reduce);
    find("ompi_mpi_comm_world", &world);
    find("ompi_mpi_float", &type_float);
    find("ompi_mpi_byte", &type_byte);
    find("ompi_mpi_double", &type_double);
    find("ompi_mpi_op_sum", &sum);
    find("ompi_mpi_op_max", &max);
    return all;
  }
};

// Seconds of the slowest rank; below zero: a wrong sum.
double Measure(const Mpi& mpi, int rank, int size, int64_t bytes) {
  void* const in_place = reinterpret_cast<void*>(1);  // MPI_IN_PLACE
  std::vector<float> data(static_cast<size_t>(bytes) / sizeof(float));
  const auto count = static_cast<int>(data.size());
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < count; ++j) {
      data[static_cast<size_t>(j)] = PatternAt(j) + static_cast<float>(rank);
    }
    mpi.barrier(mpi.world);
    const absl::Time start = absl::Now();
    mpi.all_reduce(in_place, data.data(), count, mpi.type_float, mpi.sum,
                   mpi.world);
    seconds = absl::ToDoubleSeconds(absl::Now() - start);
  }
  const float ranks = static_cast<float>(size * (size - 1)) / 2;
  for (int j = 0; j < count; ++j) {
    const float expected = PatternAt(j) * static_cast<float>(size) + ranks;
    if (data[static_cast<size_t>(j)] != expected) seconds = 1e9;
  }
  mpi.all_reduce(in_place, &seconds, 1, mpi.type_double, mpi.max, mpi.world);
  return seconds < 1e9 ? seconds : -1;
}

}  // namespace

bool HasOpenMpi() {
  return std::system("command -v mpirun >/dev/null 2>&1") == 0;
}

int ServeOpenMpiRank() {
  Mpi mpi;
  if (!mpi.Open() || mpi.init(nullptr, nullptr) != 0) return 1;
  int rank = 0, size = 0;
  mpi.rank(mpi.world, &rank);
  mpi.size(mpi.world, &size);
  // mpirun gives its input to rank 0 alone.
  int64_t bytes = 0;
  if (rank == 0) std::cin >> bytes;
  mpi.broadcast(&bytes, sizeof(bytes), mpi.type_byte, 0, mpi.world);
  const double seconds = Measure(mpi, rank, size, bytes);
  if (rank == 0) std::cout << seconds << std::endl;
  return mpi.finalize();
}

absl::StatusOr<double> OpenMpiAllReduce(int ranks, int64_t bytes) {
  MR_ASSIGN_OR_RETURN(const std::string program, ExecutablePath());
  MR_ASSIGN_OR_RETURN(
      const std::unique_ptr<Child> mpirun,
      Child::StartProgram(
          "mpirun", "mpirun",
          {"--allow-run-as-root", "--oversubscribe", "-n", absl::StrCat(ranks),
           program, absl::StrCat("--role=", kOpenMpiRole)}));
  MR_ASSIGN_OR_RETURN(const double seconds,
                      mpirun->AskNumber(absl::StrCat(bytes)));
  if (seconds < 0) return absl::InternalError("a wrong sum");
  return seconds;
}

}  // namespace miniray::bench
