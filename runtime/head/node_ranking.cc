#include "runtime/head/node_ranking.h"

namespace miniray {
namespace {

constexpr double kPackUntil = 0.5;

}  // namespace

std::optional<double> PlacementScore(const ResourceSet& request,
                                     const ResourceSet& available,
                                     const ResourceSet& total) {
  if (!available.Covers(request)) return std::nullopt;
  const double used = available.UtilisationAfter(total, request);
  return used <= kPackUntil ? -used : 1 + used;
}

void NodeRanking::Update(const std::string& node_id,
                         std::optional<double> score) {
  const auto it = scores_.find(node_id);
  if (it != scores_.end()) {
    if (score == it->second) return;
    ranked_.erase({it->second, node_id});
    if (!score.has_value()) {
      scores_.erase(it);
      return;
    }
    it->second = *score;
  } else if (score.has_value()) {
    scores_.emplace(node_id, *score);
  }
  if (score.has_value()) ranked_.emplace(*score, node_id);
}

const std::string* NodeRanking::Best() const {
  return ranked_.empty() ? nullptr : &ranked_.begin()->second;
}

void NodeRanking::Clear() {
  ranked_.clear();
  scores_.clear();
}

}  // namespace miniray
