#include "tools/bench/peers/gloo.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <sstream>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/ids.h"
#include "runtime/base/status_macros.h"
#include "tools/bench/peers/gloo_rank.h"

namespace miniray::bench {

int ServeGlooRank() {
  std::unique_ptr<GlooRank> rank;
  return ServeCommands(
      [&](const std::string& command) -> absl::StatusOr<std::string> {
        try {
          std::istringstream words(command);
          std::string name, file;
          int number = 0, size = 0;
          int64_t bytes = 0;
          words >> name;
          if (name == "run" && rank != nullptr) {
            rank->Prepare();
            const absl::Time start = absl::Now();
            rank->AllReduce();
            const absl::Time end = absl::Now();
            if (!rank->Check()) return absl::InternalError("a wrong sum");
            return absl::StrCat(absl::ToDoubleSeconds(end - start));
          }
          words >> number >> size >> bytes >> file;
          rank = std::make_unique<GlooRank>(number, size, bytes, file);
          return "0";
        } catch (const std::exception& error) {  // c10::Error, of Gloo
          return absl::InternalError(error.what());
        }
      });
}

absl::StatusOr<std::unique_ptr<GlooGroup>> GlooGroup::Start(int ranks,
                                                            int64_t bytes) {
  auto group = absl::WrapUnique(new GlooGroup);
  MR_ASSIGN_OR_RETURN(const std::string folder, RuntimeDirectory());
  group->store_file_ = absl::StrCat(folder, "/", NewId("gloo"));
  for (int i = 0; i < ranks; ++i) {
    MR_ASSIGN_OR_RETURN(std::unique_ptr<Child> rank,
                        Child::Start(kGlooRole, {}));
    MR_RETURN_IF_ERROR(rank->Send(absl::StrCat(
        "start ", i, " ", ranks, " ", bytes, " ", group->store_file_)));
    group->ranks_.push_back(std::move(rank));
  }
  for (const auto& rank : group->ranks_) {
    MR_RETURN_IF_ERROR(rank->Receive().status());
  }
  return group;
}

GlooGroup::~GlooGroup() {
  ranks_.clear();
  unlink(store_file_.c_str());
}

absl::StatusOr<double> GlooGroup::AllReduce() {
  MR_ASSIGN_OR_RETURN(const std::vector<double> seconds, AskAll(ranks_, "run"));
  return *std::max_element(seconds.begin(), seconds.end());
}

}  // namespace miniray::bench
