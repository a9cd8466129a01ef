// Tensors of other devices, CUDA's say, travel through the CPU's memory.
// Debian's LibTorch knows only the CPU, so a device of our own stands for the
// others: LibTorch's key for such, with the machine's memory behind it.

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/EmptyTensor.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "gtest/gtest.h"
#include "runtime/tensor/on_device.h"
#include "runtime/tensor/tensor_codec.h"
#include "torch/library.h"

namespace miniray {
namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

int copies_from_device = 0;

// allocate is const to some LibTorchs and not to others, which have copy_data
// too; so neither says override.
class DeviceAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const {
    void* const memory = malloc(bytes == 0 ? 1 : bytes);
    return {memory, memory, &free, c10::Device(kDevice, 0)};
  }
  c10::DataPtr allocate(size_t bytes) {
    return std::as_const(*this).allocate(bytes);
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const {
    memcpy(to, from, bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free; }
};

at::Tensor Empty(at::IntArrayRef sizes, c10::optional<at::ScalarType> type,
                 c10::optional<at::Layout> layout,
                 c10::optional<at::Device> device,
                 c10::optional<bool> pin_memory,
                 c10::optional<at::MemoryFormat> format) {
  static DeviceAllocator allocator;
  return at::detail::empty_generic(
      sizes, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      type.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        c10::optional<at::ScalarType> type,
                        c10::optional<at::Layout> layout,
                        c10::optional<at::Device> device,
                        c10::optional<bool> pin_memory) {
  at::Tensor empty =
      Empty(sizes, type, layout, device, pin_memory, c10::nullopt);
  TORCH_CHECK(empty.strides() == strides);
  return empty;
}

at::Tensor CopyFrom(const at::Tensor& self, const at::Tensor& out,
                    bool non_blocking) {
  if (self.device().type() == kDevice) ++copies_from_device;
  TORCH_CHECK(self.is_contiguous() && out.is_contiguous());
  TORCH_CHECK(self.nbytes() == out.nbytes());
  memcpy(out.data_ptr(), self.data_ptr(), self.nbytes());
  return out;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &Empty);
  library.impl("empty_strided", &EmptyStrided);
  library.impl("_copy_from", &CopyFrom);
}

using DeviceGuard =
    c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1>;
C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuard);

at::Tensor ToDevice(const at::Tensor& tensor) {
  at::Tensor there = at::empty(
      tensor.sizes(), tensor.options().device(c10::Device(kDevice, 0)));
  at::_copy_from(tensor, there);
  return there;
}

// Below and above the size from which memory is shared.
class OtherDeviceTest : public testing::TestWithParam<int64_t> {};

TEST_P(OtherDeviceTest, ATensorArrivesOnTheCpu) {
  const at::Tensor original = at::arange(GetParam()).to(at::kFloat);
  const at::Tensor there = ToDevice(original);
  ASSERT_FALSE(there.device().is_cpu());
  copies_from_device = 0;
  const absl::StatusOr<absl::Cord> bytes = EncodeValue(there);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(copies_from_device, 1);
  at::Tensor back;
  ASSERT_TRUE(DecodeValue(*bytes, &back).ok());
  EXPECT_TRUE(back.device().is_cpu());
  EXPECT_TRUE(back.equal(original));
}

TEST_P(OtherDeviceTest, NamesAndTensorsToo) {
  const at::Tensor original = at::arange(GetParam()).to(at::kInt);
  const absl::StatusOr<absl::Cord> bytes = EncodeValue(
      NamedTensors{{"here", original}, {"there", ToDevice(original)}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  NamedTensors back;
  ASSERT_TRUE(DecodeValue(*bytes, &back).ok());
  ASSERT_EQ(back.size(), 2);
  EXPECT_TRUE(back[1].second.device().is_cpu());
  EXPECT_TRUE(back[1].second.equal(original));
}

// A device of our own is the receiver's.
class OnDeviceTest : public OtherDeviceTest {
 protected:
  OnDeviceTest() {
    internal::SetReceivingDevice(c10::Device(kDevice, 0));
    copies_from_device = 0;
  }
  ~OnDeviceTest() override { internal::SetReceivingDevice(std::nullopt); }

  const at::Tensor original_ = at::arange(GetParam()).to(at::kFloat);
};

TEST_P(OnDeviceTest, ATensorArrivesWhereTheMethodSays) {
  // What was sent as a tensor may be received so, and the other way.
  const absl::StatusOr<absl::Cord> bytes = EncodeValue(original_);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  OnDevice<at::Tensor> there;
  ASSERT_TRUE(DecodeValue(*bytes, &there).ok());
  EXPECT_EQ(there.value.device(), c10::Device(kDevice, 0));
  EXPECT_TRUE(there.value.cpu().equal(original_));

  const absl::StatusOr<absl::Cord> sent = EncodeValue(there);
  ASSERT_TRUE(sent.ok()) << sent.status();
  at::Tensor back;
  ASSERT_TRUE(DecodeValue(*sent, &back).ok());
  EXPECT_TRUE(back.device().is_cpu());
  EXPECT_TRUE(back.equal(original_));
}

TEST_P(OnDeviceTest, SeveralTensorsToo) {
  const absl::StatusOr<absl::Cord> bytes =
      EncodeValue(NamedTensors{{"a", original_}, {"b", original_ * 2}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  OnDevice<NamedTensors> named;
  ASSERT_TRUE(DecodeValue(*bytes, &named).ok());
  ASSERT_EQ(named.value.size(), 2u);
  EXPECT_EQ(named.value[1].first, "b");
  EXPECT_EQ(named.value[1].second.device(), c10::Device(kDevice, 0));
  EXPECT_TRUE(named.value[1].second.cpu().equal(original_ * 2));

  const absl::StatusOr<absl::Cord> list =
      EncodeValue(std::vector<at::Tensor>{original_});
  ASSERT_TRUE(list.ok()) << list.status();
  OnDevice<std::vector<at::Tensor>> tensors;
  ASSERT_TRUE(DecodeValue(*list, &tensors).ok());
  EXPECT_EQ(tensors.value.at(0).device(), c10::Device(kDevice, 0));
}

TEST_P(OnDeviceTest, WithoutAGpuItIsTheCpu) {
  internal::SetReceivingDevice(c10::Device(c10::DeviceType::CPU));
  const absl::StatusOr<absl::Cord> bytes = EncodeValue(ToDevice(original_));
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  OnDevice<at::Tensor> here;
  ASSERT_TRUE(DecodeValue(*bytes, &here).ok());
  EXPECT_TRUE(here.value.device().is_cpu());
  here.value += 1;  // It is the receiver's own.
  EXPECT_TRUE(here.value.equal(original_ + 1));
}

INSTANTIATE_TEST_SUITE_P(Sizes, OnDeviceTest, testing::Values(5, 1'000'000));
INSTANTIATE_TEST_SUITE_P(Sizes, OtherDeviceTest, testing::Values(5, 1'000'000));

}  // namespace
}  // namespace miniray
