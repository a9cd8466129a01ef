#include "train/collective/module_check.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "ATen/ATen.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/wire/codec.h"

namespace miniray::train::internal {

std::string Difference(const Description& first, const Description& mine) {
  std::set<std::string> in_first, in_mine;
  for (const auto& [name, what] : first) in_first.insert(name);
  for (const auto& [name, what] : mine) in_mine.insert(name);
  for (const auto& [name, what] : first) {
    if (!in_mine.contains(name)) {
      return absl::StrCat("it has no ", name, ", of rank 0's (", what, ")");
    }
  }
  for (const auto& [name, what] : mine) {
    if (!in_first.contains(name)) {
      return absl::StrCat("its ", name, " (", what, ") is not there in rank 0");
    }
  }
  for (size_t i = 0; i < std::min(first.size(), mine.size()); ++i) {
    if (first[i].first != mine[i].first) {
      return absl::StrCat("its ", mine[i].first, " comes where rank 0 has ",
                          first[i].first);
    }
    if (first[i].second != mine[i].second) {
      return absl::StrCat("its ", mine[i].first, " is ", mine[i].second,
                          ", that of rank 0 is ", first[i].second);
    }
  }
  if (first.size() != mine.size()) return "a name appears twice";
  return "";
}

absl::Status CheckAlike(ProcessGroup& group, const absl::Status& problem,
                        const Description& description) {
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> problems,
                      group.AllGather(problem.message()));
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    if (problems[rank].empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, ": ", problems[rank]));
  }
  MR_ASSIGN_OR_RETURN(const absl::Cord encoded, EncodeValue(description));
  std::string bytes(encoded);
  // Rank 0's to all, and what they think of it back: little for many ranks.
  const at::Tensor size =
      at::full({1}, static_cast<int64_t>(bytes.size()), at::kLong);
  MR_RETURN_IF_ERROR(group.Broadcast(size));
  at::Tensor first_bytes = at::zeros({size.item<int64_t>()}, at::kByte);
  if (group.rank() == 0) {
    std::memcpy(first_bytes.data_ptr(), bytes.data(), bytes.size());
  }
  MR_RETURN_IF_ERROR(group.Broadcast(first_bytes));
  Description first;
  MR_RETURN_IF_ERROR(
      DecodeValue(absl::Cord(absl::string_view(
                      static_cast<const char*>(first_bytes.data_ptr()),
                      static_cast<size_t>(first_bytes.numel()))),
                  &first));
  MR_ASSIGN_OR_RETURN(const std::vector<std::string> differences,
                      group.AllGather(Difference(first, description)));
  for (size_t rank = 0; rank < differences.size(); ++rank) {
    if (differences[rank].empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the module of rank ", rank,
                     " differs from that of rank 0: ", differences[rank]));
  }
  return absl::OkStatus();
}

}  // namespace miniray::train::internal
