// Resource arithmetic in 1/10000 units, so that fractions add up exactly.

#ifndef MINIRAY_RUNTIME_HEAD_RESOURCES_H_
#define MINIRAY_RUNTIME_HEAD_RESOURCES_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace miniray {

// Not thread-safe.
class ResourceSet {
 public:
  ResourceSet() = default;
  // Errors: INVALID_ARGUMENT, a quantity that is negative, not finite or
  // absurd.
  static absl::StatusOr<ResourceSet> FromProto(const v1::Resources& resources);
  v1::Resources ToProto() const;

  // True if every quantity of `other` is there. Names that are absent count 0.
  bool Covers(const ResourceSet& other) const;
  void Add(const ResourceSet& other);
  void Subtract(const ResourceSet& other);  // May go below zero.

  // The largest share of `total` that is in use when this is what is available,
  // in [0, 1], over the quantities in `request`.
  double Utilisation(const ResourceSet& total,
                     const ResourceSet& request) const;

  // What Utilisation is once `request` has been taken from this too.
  double UtilisationAfter(const ResourceSet& total,
                          const ResourceSet& request) const;

  bool empty() const { return units_.empty(); }
  // "CPU 2, GPU 0.5"; "nothing" if empty.
  std::string ToString() const;

 private:
  static constexpr int64_t kUnit = 10000;
  int64_t Get(const std::string& name) const;
  std::map<std::string, int64_t> units_;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_RESOURCES_H_
