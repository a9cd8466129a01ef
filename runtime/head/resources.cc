#include "runtime/head/resources.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace miniray {

absl::StatusOr<ResourceSet> ResourceSet::FromRequest(
    const v1::Resources& resources) {
  absl::StatusOr<ResourceSet> set = FromProto(resources);
  if (!set.ok()) return set;
  const int64_t gpus = set->GpuUnits();
  if (gpus > kUnit && gpus % kUnit != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resource GPU = ", static_cast<double>(gpus) / kUnit,
        ": up to 1 it is a share of one device, beyond a whole number of "
        "devices"));
  }
  return set;
}

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

void ResourceSet::NumberGpus() {
  int64_t left = GpuUnits();
  for (int device = 0; left > 0; ++device, left -= kUnit) {
    gpus_[device] = std::min(left, kUnit);
  }
}

ResourceSet ResourceSet::WithGpus(const std::vector<int>& devices) const {
  ResourceSet set = *this;
  int64_t left = GpuUnits();
  for (const int device : devices) {
    set.gpus_[device] = std::min(left, kUnit);
    left -= set.gpus_[device];
  }
  return set;
}

int64_t ResourceSet::GpuUnits() const { return Get("GPU"); }

std::vector<int> ResourceSet::Gpus() const {
  std::vector<int> devices;
  for (const auto& [device, units] : gpus_) devices.push_back(device);
  return devices;
}

std::optional<std::vector<int>> ResourceSet::ChooseGpus(int64_t units) const {
  std::vector<int> chosen;
  if (units <= kUnit) {
    int64_t least = 0;
    for (const auto& [device, room] : gpus_) {
      if (room < units || (!chosen.empty() && room >= least)) continue;
      chosen = {device};
      least = room;
    }
  } else if (units % kUnit == 0) {
    for (const auto& [device, room] : gpus_) {
      if (static_cast<int64_t>(chosen.size()) == units / kUnit) break;
      if (room == kUnit) chosen.push_back(device);
    }
  }
  if (static_cast<int64_t>(chosen.size()) * kUnit < units) return std::nullopt;
  return chosen;
}

bool ResourceSet::CoversSums(const ResourceSet& other) const {
  return std::all_of(
      other.units_.begin(), other.units_.end(),
      [this](const auto& item) { return Get(item.first) >= item.second; });
}

bool ResourceSet::Covers(const ResourceSet& other) const {
  if (!CoversSums(other)) return false;
  if (gpus_.empty()) return true;
  const int64_t units = other.GpuUnits();
  return units == 0 || ChooseGpus(units).has_value();
}

ResourceSet ResourceSet::Take(const ResourceSet& request) {
  ResourceSet taken = request;
  const int64_t units = gpus_.empty() ? 0 : request.GpuUnits();
  if (units > 0) {
    // None: as a head has left it that did not know of devices.
    if (const auto devices = ChooseGpus(units); devices.has_value()) {
      taken = request.WithGpus(*devices);
    }
  }
  Subtract(taken);
  return taken;
}

void ResourceSet::Add(const ResourceSet& other) {
  for (const auto& [name, units] : other.units_) units_[name] += units;
  for (const auto& [device, units] : other.gpus_) gpus_[device] += units;
}

void ResourceSet::Subtract(const ResourceSet& other) {
  for (const auto& [name, units] : other.units_) units_[name] -= units;
  for (const auto& [device, units] : other.gpus_) gpus_[device] -= units;
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
