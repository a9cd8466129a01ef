// AbortableDevice: Gloo's TCP transport, whose operations can be made to fail
// from another thread.
//
// Gloo itself offers nothing of the kind. A connection that breaks fails the
// operations that wait for it, but not one in the middle of receiving or
// sending its bytes, nor those that wait for other ranks: they wait for their
// timeout. So this device stands between Gloo's algorithms and its transport,
// on Gloo's public interface alone: it passes everything on, and knows the
// buffers that may be waited for, and the connections.
//
// Includes Gloo's headers; for sources, not for headers that others include.

#ifndef MINIRAY_TRAIN_COLLECTIVE_ABORTABLE_DEVICE_H_
#define MINIRAY_TRAIN_COLLECTIVE_ABORTABLE_DEVICE_H_

#include <memory>
#include <string>

#include "gloo/transport/context.h"
#include "gloo/transport/device.h"

namespace miniray::train::internal {

// Thread-safe.
class AbortableDevice : public gloo::transport::Device {
 public:
  // `address` is an IP address of this machine. Throws what Gloo does if it is
  // not.
  explicit AbortableDevice(const std::string& address);

  // Makes every wait on buffers of this device throw gloo::IoException with
  // `message`, those that are under way within microseconds; then closes all
  // connections, which takes up to 10 ms for each; from then on every operation
  // throws. Of several calls the first counts.
  void Abort(const std::string& message);

  // Waits on buffers of this device that are under way.
  int waits() const;

  std::string str() const override { return tcp_->str(); }
  const std::string& getPCIBusID() const override {
    return tcp_->getPCIBusID();
  }
  int getInterfaceSpeed() const override { return tcp_->getInterfaceSpeed(); }
  std::shared_ptr<gloo::transport::Context> createContext(int rank,
                                                          int size) override;

 private:
  struct Switch;
  class AbortableContext;
  class AbortableBuffer;

  const std::shared_ptr<gloo::transport::Device> tcp_;
  const std::shared_ptr<Switch> switch_;
};

}  // namespace miniray::train::internal

#endif  // MINIRAY_TRAIN_COLLECTIVE_ABORTABLE_DEVICE_H_
