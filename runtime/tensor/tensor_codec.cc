#include "runtime/tensor/tensor_codec.h"

#include <bit>
#include <cstring>
#include <limits>

#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "c10/core/ScalarType.h"
#include "proto/tensor.pb.h"
#include "runtime/base/copy.h"
#include "runtime/shm/borrowed_memory.h"
#include "runtime/shm/warm_memory.h"
#include "runtime/wire/adoption.h"

namespace miniray {
namespace {

static_assert(std::endian::native == std::endian::little,
              "Tensor.data is little-endian; this machine is not");

constexpr int kDTypeField = 1;
constexpr int kShapeField = 2;
constexpr int kDataField = 15;

// More dimensions than any model has; bounds what a hostile message can ask.
constexpr size_t kMaxDimensions = 64;

// Of the elements of every type.
constexpr uintptr_t kAlignment = 16;

struct DTypePair {
  v1::DType wire;
  c10::ScalarType torch;
};

constexpr DTypePair kDTypes[] = {
    {v1::DTYPE_BOOL, c10::ScalarType::Bool},
    {v1::DTYPE_UINT8, c10::ScalarType::Byte},
    {v1::DTYPE_INT8, c10::ScalarType::Char},
    {v1::DTYPE_INT16, c10::ScalarType::Short},
    {v1::DTYPE_INT32, c10::ScalarType::Int},
    {v1::DTYPE_INT64, c10::ScalarType::Long},
    {v1::DTYPE_FLOAT16, c10::ScalarType::Half},
    {v1::DTYPE_BFLOAT16, c10::ScalarType::BFloat16},
    {v1::DTYPE_FLOAT32, c10::ScalarType::Float},
    {v1::DTYPE_FLOAT64, c10::ScalarType::Double},
    {v1::DTYPE_COMPLEX64, c10::ScalarType::ComplexFloat},
    {v1::DTYPE_COMPLEX128, c10::ScalarType::ComplexDouble},
};

// True if nobody but `tensor` itself can see or change its memory.
bool OwnsMemoryAlone(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.storage().resizable();  // from_blob memory is somebody else's
}

absl::Cord ShareMemory(at::Tensor tensor) {
  const absl::string_view bytes(static_cast<const char*>(tensor.data_ptr()),
                                tensor.nbytes());
  return absl::MakeCordFromExternal(
      bytes, [tensor = std::move(tensor)](absl::string_view) {});
}

// Below this, copying is cheaper than anything else.
constexpr size_t kMinAdopted = 16 << 10;

// A copy, row-major and on the CPU, in memory whose pages are warm if it is
// large: shared memory, if there is some.
absl::Cord CopyBytes(const at::Tensor& tensor) {
  const at::Tensor resolved = tensor.resolve_conj().resolve_neg();
  std::shared_ptr<char> block = AllocateWarm(resolved.nbytes());
  if (block == nullptr) {
    return ShareMemory(resolved.device().is_cpu()
                           ? resolved.clone(at::MemoryFormat::Contiguous)
                           : resolved.cpu().contiguous());
  }
  if (resolved.is_contiguous() && resolved.device().is_cpu()) {
    CopyLarge(block.get(), resolved.data_ptr(), resolved.nbytes());
  } else {
    at::from_blob(block.get(), resolved.sizes(),
                  resolved.options().device(at::kCPU))
        .copy_(resolved);
  }
  const absl::string_view bytes(block.get(), resolved.nbytes());
  return absl::MakeCordFromExternal(bytes, [block = std::move(block)] {});
}

// Memory for a received tensor: if it is large, where pages are warm, and from
// where it may be sent on.
at::Tensor EmptyTensor(const std::vector<int64_t>& shape, c10::ScalarType dtype,
                       uint64_t bytes) {
  const auto options = at::TensorOptions().dtype(dtype);
  std::shared_ptr<char> block = AllocateWarm(bytes);
  if (block == nullptr) return at::empty(shape, options);
  char* const address = block.get();
  return at::from_blob(
      address, shape, [block = std::move(block)](void*) {}, options);
}

// A tensor on memory that `data` holds, or that begins as it does; undefined
// where only a copy will do.
at::Tensor Adopt(const absl::Cord& data, const std::vector<int64_t>& shape,
                 c10::ScalarType dtype) {
  const absl::optional<absl::string_view> flat = data.TryFlat();
  if (!flat.has_value() || flat->size() < kMinAdopted ||
      reinterpret_cast<uintptr_t>(flat->data()) % kAlignment != 0) {
    return {};
  }
  const auto options = at::TensorOptions().dtype(dtype);
  // A bool must be made one first; see below.
  if (internal::AdoptionScope::Active() ||
      (internal::ReadOnlyScope::Active() && dtype != c10::ScalarType::Bool)) {
    return at::from_blob(
        const_cast<char*>(flat->data()), shape, [data](void*) {}, options);
  }
  std::shared_ptr<char> memory = BorrowedMemory::Get().MapPrivate(*flat);
  if (memory == nullptr) return {};
  char* const address = memory.get();
  return at::from_blob(
      address, shape,
      [lease = absl::Cord(data), memory = std::move(memory)](void*) mutable {
        memory.reset();  // While the lease still holds.
        lease.Clear();
      },
      options);
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed tensor: ", what));
}

}  // namespace

absl::Status Codec<at::Tensor>::Encode(const at::Tensor& tensor,
                                       WireWriter* out) {
  if (!tensor.defined()) {
    return absl::InvalidArgumentError(
        "an undefined tensor cannot travel; send an empty one or use "
        "std::optional<at::Tensor>");
  }
  if (tensor.layout() != c10::kStrided || tensor.is_quantized()) {
    return absl::InvalidArgumentError(
        "only dense tensors can travel; call to_dense() or dequantize() first");
  }
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  for (const DTypePair& pair : kDTypes) {
    if (pair.torch == tensor.scalar_type()) dtype = pair.wire;
  }
  if (dtype == v1::DTYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensors of type ", c10::toString(tensor.scalar_type()),
                     " cannot travel"));
  }
  try {
    // detach() would share the storage: whether a copy is needed is asked
    // first.
    const bool keep =
        OwnsMemoryAlone(tensor) || internal::ReadOnlyScope::Active();
    at::Tensor dense = tensor.detach();
    absl::Cord bytes = keep && dense.device().is_cpu() &&
                               dense.is_contiguous() && !dense.is_conj() &&
                               !dense.is_neg()
                           ? ShareMemory(dense)
                           : CopyBytes(dense);
    WireWriter nested;
    nested.Varint(kDTypeField, dtype);
    if (dense.dim() > 0) {
      std::string packed;
      for (int64_t size : dense.sizes()) {
        auto value = static_cast<uint64_t>(size);
        for (; value >= 0x80; value >>= 7) {
          packed.push_back(static_cast<char>(value | 0x80));
        }
        packed.push_back(static_cast<char>(value));
      }
      nested.Bytes(kShapeField, absl::string_view(packed));
    }
    nested.Bytes(kDataField, std::move(bytes));
    out->Message(static_cast<int>(ValueKind::kTensor), std::move(nested));
  } catch (const std::exception& error) {  // c10::Error, out of memory
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot copy a tensor for sending: ", error.what()));
  }
  return absl::OkStatus();
}

absl::Status Codec<at::Tensor>::Decode(const ValueView& view, at::Tensor* out) {
  if (view.kind != ValueKind::kTensor) return view.Mismatch("a tensor");
  uint64_t dtype = 0;
  std::vector<int64_t> shape;
  absl::Cord data;
  WireReader reader(view.field.bytes);
  WireField field;
  auto add_dimension = [&](uint64_t size) {
    shape.push_back(static_cast<int64_t>(size));
    return shape.size() <= kMaxDimensions;
  };
  while (!reader.done()) {
    MR_RETURN_IF_ERROR(reader.Next(&field));
    using Type = WireField::Type;
    if (field.number == kDTypeField && field.type == Type::kVarint) {
      dtype = field.scalar;
    } else if (field.number == kDataField && field.type == Type::kBytes) {
      data = std::move(field.bytes);
    }
    if (field.number != kShapeField) continue;
    // Packed, as proto3 writes it, or one by one, as a parser must also accept.
    if (field.type == Type::kVarint) {
      if (!add_dimension(field.scalar)) return Malformed("too many dimensions");
      continue;
    }
    if (field.type != Type::kBytes) continue;
    WireReader sizes(field.bytes);
    while (!sizes.done()) {
      MR_ASSIGN_OR_RETURN(const uint64_t size, sizes.RawVarint());
      if (!add_dimension(size)) return Malformed("too many dimensions");
    }
  }
  const DTypePair* found = nullptr;
  for (const DTypePair& pair : kDTypes) {
    if (static_cast<uint64_t>(pair.wire) == dtype) found = &pair;
  }
  if (found == nullptr) {
    return Malformed(absl::StrCat("unknown element type ", dtype));
  }
  // Zero sizes are allowed, so the product is checked without dividing by one.
  uint64_t bytes = c10::elementSize(found->torch);
  for (int64_t size : shape) {
    if (size < 0) return Malformed("a negative size");
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return Malformed("its shape is larger than memory");
    }
  }
  if (bytes != data.size()) {
    return Malformed(absl::StrCat("its shape needs ", bytes, " bytes, but ",
                                  data.size(), " came"));
  }
  try {
    at::Tensor tensor = Adopt(data, shape, found->torch);
    if (!tensor.defined()) {
      tensor = EmptyTensor(shape, found->torch, bytes);
      auto* target = static_cast<char*>(tensor.data_ptr());
      for (absl::string_view chunk : data.Chunks()) {
        CopyLarge(target, chunk.data(), chunk.size());
        target += chunk.size();
      }
    }
    if (found->torch == c10::ScalarType::Bool) {
      // Any other byte in a bool is undefined behaviour in whoever reads it.
      auto* bytes = static_cast<unsigned char*>(tensor.data_ptr());
      for (uint64_t i = 0; i < data.size(); ++i) {
        if (bytes[i] > 1) bytes[i] = 1;
      }
    }
    *out = std::move(tensor);
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for a received tensor: ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace miniray
