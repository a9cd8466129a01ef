#include "runtime/tensor/tensor_codec.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/value.pb.h"

namespace miniray {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

at::Tensor RoundTrip(const at::Tensor& tensor) {
  absl::StatusOr<absl::Cord> bytes = EncodeValue(tensor);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  at::Tensor back;
  const absl::Status status = DecodeValue(*bytes, &back);
  EXPECT_TRUE(status.ok()) << status;
  return back;
}

void ExpectSame(const at::Tensor& got, const at::Tensor& want) {
  ASSERT_TRUE(got.defined());
  EXPECT_EQ(got.scalar_type(), want.scalar_type());
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_TRUE(got.is_contiguous());
  EXPECT_TRUE(got.equal(want));
}

// A message as anybody's protobuf would write it.
absl::Status DecodeProto(const v1::Tensor& tensor, at::Tensor* out) {
  v1::Value value;
  *value.mutable_tensor() = tensor;
  return DecodeValue(absl::Cord(value.SerializeAsString()), out);
}

TEST(TensorCodecTest, EveryElementTypeTravels) {
  for (at::ScalarType type :
       {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong,
        at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat,
        at::kComplexDouble}) {
    SCOPED_TRACE(c10::toString(type));
    ExpectSame(RoundTrip(at::arange(0, 6).reshape({2, 3}).to(type)),
               at::arange(0, 6).reshape({2, 3}).to(type));
  }
}

TEST(TensorCodecTest, EveryShapeTravels) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{},
                                         {1},
                                         {0},
                                         {3, 0, 2},
                                         {2, 3, 4, 5},
                                         std::vector<int64_t>(64, 1)}) {
    const at::Tensor tensor = at::rand(shape);
    ExpectSame(RoundTrip(tensor), tensor);
  }
}

TEST(TensorCodecTest, ViewsArriveDense) {
  const at::Tensor base = at::rand({4, 6});
  ExpectSame(RoundTrip(base.t()), base.t().contiguous());
  ExpectSame(RoundTrip(base.slice(1, 1, 5, 2)),
             base.slice(1, 1, 5, 2).contiguous());
  ExpectSame(RoundTrip(at::rand({1, 3}).expand({5, 3}).zero_()),
             at::zeros({5, 3}));
  const at::Tensor complex = at::rand({3}, at::kComplexFloat);
  ExpectSame(RoundTrip(complex.conj()), complex.conj().resolve_conj());
  ExpectSame(RoundTrip(at::imag(complex.conj())),
             at::imag(complex.conj()).resolve_neg());
  const at::Tensor leaf = at::rand({3}).requires_grad_(true);
  const at::Tensor back = RoundTrip(leaf);
  EXPECT_FALSE(back.requires_grad());
  EXPECT_TRUE(back.equal(leaf.detach()));
}

TEST(TensorCodecTest, SpecialValuesKeepTheirBits) {
  const at::Tensor tensor =
      at::tensor({std::numeric_limits<float>::infinity(), -0.0f,
                  std::numeric_limits<float>::denorm_min(),
                  std::numeric_limits<float>::quiet_NaN()});
  const at::Tensor back = RoundTrip(tensor);
  EXPECT_EQ(std::string(static_cast<const char*>(back.data_ptr()), 16),
            std::string(static_cast<const char*>(tensor.data_ptr()), 16));
}

TEST(TensorCodecTest, ATensorTravelsByValue) {
  at::Tensor tensor = at::ones({1000});
  const at::Tensor view = tensor.slice(0, 0, 10);
  absl::StatusOr<absl::Cord> whole = EncodeValue(tensor);
  absl::StatusOr<absl::Cord> part = EncodeValue(view);
  tensor.fill_(7);
  at::Tensor back;
  ASSERT_TRUE(DecodeValue(*whole, &back).ok());
  EXPECT_TRUE(back.equal(at::ones({1000})));
  ASSERT_TRUE(DecodeValue(*part, &back).ok());
  EXPECT_TRUE(back.equal(at::ones({10})));
}

TEST(TensorCodecTest, MemoryThatNobodyElseHoldsIsNotCopied) {
  const at::Tensor alone = at::ones({100000});
  const void* memory = alone.data_ptr();
  absl::StatusOr<absl::Cord> bytes = EncodeValue(alone);
  ASSERT_TRUE(bytes.ok());
  auto holds = [&](const absl::Cord& cord) {
    for (absl::string_view chunk : cord.Chunks()) {
      if (chunk.data() == memory) return true;
    }
    return false;
  };
  EXPECT_TRUE(holds(*bytes));
  const at::Tensor second = alone;  // Now two hold it.
  EXPECT_FALSE(holds(*EncodeValue(alone)));
  float raw[4096] = {};
  const at::Tensor foreign = at::from_blob(raw, {4096});
  memory = raw;
  EXPECT_FALSE(holds(*EncodeValue(foreign)));
}

TEST(TensorCodecTest, WhatCannotTravelIsRefused) {
  EXPECT_EQ(EncodeValue(at::Tensor()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(EncodeValue(at::eye(3).to_sparse()).status().message()),
      HasSubstr("to_dense"));
  const at::Tensor quantized =
      at::quantize_per_tensor(at::rand({4}), 0.1, 0, at::kQInt8);
  EXPECT_THAT(std::string(EncodeValue(quantized).status().message()),
              HasSubstr("dequantize"));
}

TEST(TensorCodecTest, StockProtobufReadsWhatWeWrite) {
  const at::Tensor tensor = at::arange(6, at::kInt).reshape({2, 3});
  v1::Value value;
  ASSERT_TRUE(value.ParseFromString(std::string(*EncodeValue(tensor))));
  ASSERT_TRUE(value.has_tensor());
  EXPECT_EQ(value.tensor().dtype(), v1::DTYPE_INT32);
  EXPECT_THAT(value.tensor().shape(), ElementsAre(2, 3));
  EXPECT_EQ(value.tensor().data(),
            std::string(static_cast<const char*>(tensor.data_ptr()), 24));
}

TEST(TensorCodecTest, WeReadWhatStockProtobufWrites) {
  v1::Tensor message;
  message.set_dtype(v1::DTYPE_INT64);
  message.add_shape(2);
  const int64_t elements[] = {-1, 5};
  message.set_data(std::string(reinterpret_cast<const char*>(elements), 16));
  at::Tensor tensor;
  ASSERT_TRUE(DecodeProto(message, &tensor).ok());
  EXPECT_TRUE(tensor.equal(at::tensor({int64_t{-1}, int64_t{5}})));
}

TEST(TensorCodecTest, AnUnpackedShapeIsReadToo) {
  WireWriter tensor, value;
  tensor.Varint(2, 2);
  tensor.Varint(2, 1);
  tensor.Varint(1, v1::DTYPE_UINT8);
  tensor.Bytes(15, absl::string_view("ab"));
  value.Message(7, std::move(tensor));
  at::Tensor out;
  ASSERT_TRUE(DecodeValue(std::move(value).Take(), &out).ok());
  EXPECT_THAT(out.sizes(), ElementsAre(2, 1));
}

TEST(TensorCodecTest, BoolsAreZeroOrOne) {
  v1::Tensor message;
  message.set_dtype(v1::DTYPE_BOOL);
  message.add_shape(3);
  message.set_data(std::string("\x00\x02\xff", 3));
  at::Tensor tensor;
  ASSERT_TRUE(DecodeProto(message, &tensor).ok());
  const auto* bytes = static_cast<const unsigned char*>(tensor.data_ptr());
  EXPECT_THAT(std::vector<int>(bytes, bytes + 3), ElementsAre(0, 1, 1));
}

TEST(TensorCodecTest, HostileMessagesAreErrors) {
  at::Tensor out;
  auto decode = [&](v1::DType dtype, const std::vector<int64_t>& shape,
                    size_t bytes) {
    v1::Tensor message;
    message.set_dtype(dtype);
    for (int64_t size : shape) message.add_shape(size);
    message.set_data(std::string(bytes, 'x'));
    return DecodeProto(message, &out).code();
  };
  const auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(decode(v1::DTYPE_FLOAT32, {2}, 7), kBad);
  EXPECT_EQ(decode(v1::DTYPE_FLOAT32, {2}, 9), kBad);
  EXPECT_EQ(decode(v1::DTYPE_FLOAT32, {-2}, 8), kBad);
  EXPECT_EQ(decode(v1::DTYPE_FLOAT32, {int64_t{1} << 62, 4}, 0), kBad);
  EXPECT_EQ(decode(v1::DTYPE_FLOAT32, {int64_t{1} << 40, int64_t{1} << 40}, 8),
            kBad);
  EXPECT_EQ(decode(v1::DTYPE_UNSPECIFIED, {1}, 4), kBad);
  EXPECT_EQ(decode(static_cast<v1::DType>(99), {1}, 4), kBad);
  EXPECT_EQ(decode(v1::DTYPE_UINT8, std::vector<int64_t>(65, 1), 1), kBad);
  // As large as it says, though nothing came: no memory is taken for it.
  EXPECT_EQ(decode(v1::DTYPE_UINT8, {int64_t{1} << 50}, 3), kBad);
}

TEST(TensorCodecTest, NamedTensorsKeepTheirOrder) {
  const NamedTensors tensors = {{"b", at::ones({2})}, {"a", at::zeros({0})}};
  absl::StatusOr<absl::Cord> bytes = EncodeValue(tensors);
  NamedTensors back;
  ASSERT_TRUE(DecodeValue(*bytes, &back).ok());
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].first, "b");
  ExpectSame(back[1].second, tensors[1].second);
}

struct Checkpoint {
  std::string note;
  NamedTensors weights;
  std::map<std::string, at::Tensor> moments;
  std::optional<at::Tensor> mask;
};
MINIRAY_STRUCT(Checkpoint, note, weights, moments, mask);

TEST(TensorCodecTest, EveryLargeTensorOfAValueIsUsedWhereItLies) {
  Checkpoint sent;
  sent.note = std::string(5001, 'n');  // Large, and of an odd size.
  sent.weights = {{"conv", at::rand({5003})},
                  {"bias", at::rand({3})},
                  {"half", at::rand({20001}).to(at::kHalf)},
                  {"bytes", at::ones({70001}, at::kByte)},
                  {"double", at::rand({2049}, at::kDouble)}};
  sent.moments = {{"a", at::rand({4099})}, {"b", at::rand({8191})}};
  sent.mask = at::ones({16391}, at::kChar);
  const auto bytes = EncodeValue(ReadOnly<Checkpoint>{sent});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  // As it lies in a segment or a file of the object store.
  const auto memory = std::unique_ptr<char, decltype(&free)>(
      static_cast<char*>(aligned_alloc(64, (bytes->size() + 63) / 64 * 64)),
      &free);
  char* end = memory.get();
  for (absl::string_view chunk : bytes->Chunks()) {
    end = std::copy(chunk.begin(), chunk.end(), end);
  }
  const absl::Cord flat = absl::MakeCordFromExternal(
      absl::string_view(memory.get(), bytes->size()), [] {});
  ReadOnly<Checkpoint> got;
  const absl::Status status = DecodeValue(flat, &got);
  ASSERT_TRUE(status.ok()) << status;
  const auto check = [&](const at::Tensor& tensor, const at::Tensor& want) {
    ExpectSame(tensor, want);
    if (tensor.nbytes() < 16384) return;
    const auto* data = static_cast<const char*>(tensor.data_ptr());
    EXPECT_TRUE(data >= memory.get() && data < end) << "copied";
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
  };
  EXPECT_EQ(got.value.note, sent.note);
  ASSERT_EQ(got.value.weights.size(), sent.weights.size());
  for (size_t i = 0; i < sent.weights.size(); ++i) {
    EXPECT_EQ(got.value.weights[i].first, sent.weights[i].first);
    check(got.value.weights[i].second, sent.weights[i].second);
  }
  ASSERT_EQ(got.value.moments.size(), 2u);
  check(got.value.moments["a"], sent.moments["a"]);
  check(got.value.moments["b"], sent.moments["b"]);
  check(*got.value.mask, *sent.mask);
  // Anybody's protobuf reads it.
  v1::Value parsed;
  ASSERT_TRUE(parsed.ParseFromString(std::string(*bytes)));
  EXPECT_EQ(parsed.list().items_size(), 4);
}

}  // namespace
}  // namespace miniray
