#include "runtime/head/resources.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace miniray {

absl::StatusOr<ResourceSet> ResourceSet::FromProto(
    const v1::Resources& resources) {
  ResourceSet set;
  for (const auto& [name, quantity] : resources.quantity()) {
    // 9e14 keeps the product with kUnit within 64 bits: 900 TB of memory.
    if (!std::isfinite(quantity) || quantity < 0 || quantity > 9e14) {
      return absl::InvalidArgumentError(
          absl::StrCat("resource ", name, " = ", quantity,
                       ": must be a number between 0 and 9e14"));
    }
    if (quantity == 0) continue;
    // Not zero, however small: otherwise any number of actors would fit.
    set.units_[name] = std::max<int64_t>(std::llround(quantity * kUnit), 1);
  }
  return set;
}

v1::Resources ResourceSet::ToProto() const {
  v1::Resources result;
  for (const auto& [name, units] : units_) {
    (*result.mutable_quantity())[name] =
        static_cast<double>(units) / static_cast<double>(kUnit);
  }
  return result;
}

int64_t ResourceSet::Get(const std::string& name) const {
  const auto it = units_.find(name);
  return it == units_.end() ? 0 : it->second;
}

bool ResourceSet::Covers(const ResourceSet& other) const {
  return std::all_of(
      other.units_.begin(), other.units_.end(),
      [this](const auto& item) { return Get(item.first) >= item.second; });
}

void ResourceSet::Add(const ResourceSet& other) {
  for (const auto& [name, units] : other.units_) units_[name] += units;
}

void ResourceSet::Subtract(const ResourceSet& other) {
  for (const auto& [name, units] : other.units_) units_[name] -= units;
}

double ResourceSet::Utilisation(const ResourceSet& total,
                                const ResourceSet& request) const {
  double most = 0;
  for (const auto& [name, unused] : request.units_) {
    const auto have = static_cast<double>(total.Get(name));
    if (have <= 0) continue;
    most = std::max(most, 1 - static_cast<double>(Get(name)) / have);
  }
  return most;
}

double ResourceSet::UtilisationAfter(const ResourceSet& total,
                                     const ResourceSet& request) const {
  double most = 0;
  for (const auto& [name, units] : request.units_) {
    const auto have = static_cast<double>(total.Get(name));
    if (have <= 0) continue;
    most = std::max(most, 1 - static_cast<double>(Get(name) - units) / have);
  }
  return most;
}

std::string ResourceSet::ToString() const {
  std::vector<std::string> parts;
  for (const auto& [name, units] : units_) {
    if (units % kUnit == 0) {  // As most are, and many times faster.
      parts.push_back(absl::StrCat(name, " ", units / kUnit));
      continue;
    }
    parts.push_back(absl::StrFormat(
        "%s %.15g", name,
        static_cast<double>(units) / static_cast<double>(kUnit)));
  }
  return parts.empty() ? "nothing" : absl::StrJoin(parts, ", ");
}

}  // namespace miniray
