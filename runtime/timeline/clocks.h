// Times of other machines, brought to the head's clock.

#ifndef MINIRAY_RUNTIME_TIMELINE_CLOCKS_H_
#define MINIRAY_RUNTIME_TIMELINE_CLOCKS_H_

#include <cstdint>
#include <map>
#include <string>

#include "google/protobuf/repeated_ptr_field.h"
#include "proto/head.pb.h"

namespace miniray {

// Thread-safe, being constant.
class Clocks {
 public:
  explicit Clocks(
      const google::protobuf::RepeatedPtrField<v1::NodeClock>& clocks);

  // What to take off the times of a node, in microseconds; 0 where nothing is
  // known, or not surely anything but 0.
  int64_t OfNode(const std::string& node_id) const;
  // The same of a host: by its node whose clock is known best.
  int64_t OfHost(const std::string& hostname) const;

 private:
  std::map<std::string, int64_t> by_node_;
  std::map<std::string, int64_t> by_host_;
};

// a - b, or the nearest that there is: times may come from anywhere.
int64_t Minus(int64_t a, int64_t b);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_TIMELINE_CLOCKS_H_
