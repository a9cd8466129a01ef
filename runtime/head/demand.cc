#include "runtime/head/demand.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace miniray {

Demand Demand::Of(const v1::ActorSpec& spec, const ResourceSet& request) {
  Demand demand;
  demand.request = request;
  demand.node_id = spec.node_id();
  demand.soft = spec.soft_affinity();
  demand.labels.insert(spec.node_labels().begin(), spec.node_labels().end());
  demand.group_id = spec.placement_group_id();
  if (spec.has_bundle_index()) demand.bundle_index = spec.bundle_index();
  return demand;
}

std::string Demand::Key() const {
  std::string key = request.ToString();
  if (!group_id.empty()) {
    // The length keeps apart what a name may contain.
    absl::StrAppend(&key, "|g", group_id.size(), group_id, "#", bundle_index);
  }
  if (!node_id.empty()) {
    absl::StrAppend(&key, "|n", node_id.size(), node_id, soft ? "s" : "h");
  }
  for (const auto& [name, value] : labels) {
    absl::StrAppend(&key, "|l", name.size(), name, "=", value.size(), value);
  }
  return key;
}

std::string Demand::ToString() const {
  std::string text = request.empty() ? "" : request.ToString();
  // The place alone, where nothing is asked of it.
  const auto at = [&text](absl::string_view before, const std::string& place) {
    absl::StrAppend(&text, text.empty() ? "" : before, place);
  };
  if (!group_id.empty()) {
    at(" in ",
       absl::StrCat(bundle_index >= 0 ? absl::StrCat("bundle ", bundle_index)
                                      : "a bundle",
                    " of placement group ", group_id));
  }
  if (!node_id.empty()) at(" on ", absl::StrCat("node ", node_id));
  if (!labels.empty()) {
    at(" on ",
       absl::StrCat("a node with ",
                    absl::StrJoin(labels, ", ", absl::PairFormatter("="))));
  }
  return text.empty() ? "a node" : text;
}

bool Demand::LabelsMatch(const v1::NodeInfo& node) const {
  return std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
    const auto it = node.labels().find(label.first);
    return it != node.labels().end() && it->second == label.second;
  });
}

}  // namespace miniray
