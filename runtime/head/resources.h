// Resource arithmetic in 1/10000 units, so that fractions add up exactly.

#ifndef MINIRAY_RUNTIME_HEAD_RESOURCES_H_
#define MINIRAY_RUNTIME_HEAD_RESOURCES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"

namespace miniray {

// The GPUs of a node, and what is taken of them, are devices: a request of up
// to one GPU is a share of one device, beyond it is a whole number of devices.
// A set without devices, as a request is, counts GPUs like everything else.
//
// Not thread-safe.
class ResourceSet {
 public:
  static constexpr int64_t kUnit = 10000;
  static constexpr int kMaxGpus = 10000;  // Of a node.

  ResourceSet() = default;
  // Errors: INVALID_ARGUMENT, a quantity that is negative, not finite or
  // absurd.
  static absl::StatusOr<ResourceSet> FromProto(const v1::Resources& resources);
  // The same for what somebody asks for. Errors also: INVALID_ARGUMENT, more
  // than one GPU, and not a whole number of them.
  static absl::StatusOr<ResourceSet> FromRequest(
      const v1::Resources& resources);
  v1::Resources ToProto() const;

  // Makes the GPUs of a node devices, numbered from 0; the last one may be a
  // part of a GPU. REQUIRES: at most kMaxGpus.
  void NumberGpus();
  // A request with the devices that were chosen for it, in the order of Gpus.
  template <class Devices>
  ResourceSet OnGpus(const Devices& devices) const {
    return WithGpus(std::vector<int>(devices.begin(), devices.end()));
  }
  void ForgetGpus() { gpus_.clear(); }
  // Its devices.
  std::vector<int> Gpus() const;
  int64_t GpuUnits() const;  // On devices or not; one GPU is kUnit.

  // True if every quantity of `other` is there, its GPUs on devices that have
  // them. Names that are absent count 0.
  bool Covers(const ResourceSet& other) const;
  // The same, whichever devices the GPUs are on.
  bool CoversSums(const ResourceSet& other) const;
  // Subtracts `request` and returns it, with the devices that were chosen for
  // it: a share comes from the device with the least room for it, so that whole
  // ones are kept. REQUIRES: this covers it.
  ResourceSet Take(const ResourceSet& request);
  // These go by devices where `other` has some.
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
  int64_t Get(const std::string& name) const;
  ResourceSet WithGpus(const std::vector<int>& devices) const;
  // Devices for a request of so many units; nothing: there are none.
  std::optional<std::vector<int>> ChooseGpus(int64_t units) const;

  std::map<std::string, int64_t> units_;
  std::map<int, int64_t> gpus_;  // Units by device; they are in units_ too.
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_RESOURCES_H_
