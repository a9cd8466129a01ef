// Reads TensorBoard's event files without any code that writes them.

#ifndef MINIRAY_TESTS_TRAIN_EVENT_FILE_READER_H_
#define MINIRAY_TESTS_TRAIN_EVENT_FILE_READER_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace miniray::train {

// CRC-32C, one bit after the other, as the polynomial says.
inline uint32_t BitwiseCrc32c(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const unsigned char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t out = (crc ^ (byte >> bit)) & 1;
      crc >>= 1;
      if (out != 0) crc ^= 0x82F63B78;  // 0x1EDC6F41, reflected.
    }
  }
  return crc ^ 0xFFFFFFFF;
}

// A Summary.Image of tensorflow/core/framework/summary.proto.
struct ReadImage {
  uint64_t height = 0;
  uint64_t width = 0;
  uint64_t colorspace = 0;
  std::string encoded;
};

// An Event of tensorflow/core/util/event.proto.
struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string file_version;
  uint64_t session_status = 0;           // 1: START.
  std::map<std::string, float> scalars;  // By tag.
  std::map<std::string, ReadImage> images;
};

// Takes protobuf's wire format apart. Throws std::runtime_error where it is
// none.
class FieldReader {
 public:
  explicit FieldReader(std::string bytes) : bytes_(std::move(bytes)) {}

  // Goes to the next field; false at the end.
  bool Next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = Varint();
    number = static_cast<int>(tag >> 3);
    switch (tag & 7) {
      case 0:
        varint = Varint();
        return true;
      case 1:
        bytes = Take(8);
        return true;
      case 2:
        bytes = Take(Varint());
        return true;
      case 5:
        bytes = Take(4);
        return true;
    }
    throw std::runtime_error("no such wire type");
  }

  template <class T>
  T As() const {
    if (bytes.size() != sizeof(T)) throw std::runtime_error("not this type");
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  int number = 0;
  uint64_t varint = 0;
  std::string bytes;

 private:
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(Take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    throw std::runtime_error("varint too long");
  }
  std::string Take(uint64_t size) {
    if (size > bytes_.size() - at_) throw std::runtime_error("cut field");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  const std::string bytes_;
  size_t at_ = 0;
};

inline ReadImage ParseImage(const std::string& data) {
  ReadImage image;
  FieldReader fields(data);
  while (fields.Next()) {
    if (fields.number == 1) image.height = fields.varint;
    if (fields.number == 2) image.width = fields.varint;
    if (fields.number == 3) image.colorspace = fields.varint;
    if (fields.number == 4) image.encoded = fields.bytes;
  }
  return image;
}

inline ReadEvent ParseEvent(const std::string& data) {
  ReadEvent event;
  FieldReader fields(data);
  while (fields.Next()) {
    if (fields.number == 1) event.wall_time = fields.As<double>();
    if (fields.number == 2) event.step = static_cast<int64_t>(fields.varint);
    if (fields.number == 3) event.file_version = fields.bytes;
    if (fields.number == 7) {
      FieldReader session(fields.bytes);
      while (session.Next()) {
        if (session.number == 1) event.session_status = session.varint;
      }
    }
    if (fields.number != 5) continue;
    FieldReader summary(fields.bytes);
    while (summary.Next()) {
      if (summary.number != 1) throw std::runtime_error("no value");
      std::string tag;
      std::optional<float> scalar;
      std::optional<ReadImage> image;
      FieldReader value(summary.bytes);
      while (value.Next()) {
        if (value.number == 1) tag = value.bytes;
        if (value.number == 2) scalar = value.As<float>();
        if (value.number == 4) image = ParseImage(value.bytes);
      }
      if (scalar.has_value() == image.has_value()) {
        throw std::runtime_error("neither simple_value nor image, or both");
      }
      if (scalar.has_value()) event.scalars[tag] = *scalar;
      if (image.has_value()) event.images[tag] = *image;
    }
  }
  return event;
}

// What TensorBoard shows of files in the order of their names, by tag and step:
// START takes away what was there of its step and of later ones, of all tags.
// Source: tensorboard/backend/event_processing/event_accumulator.py, _Purge.
inline std::map<std::string, std::map<int64_t, float>> ShownScalars(
    const std::vector<ReadEvent>& events) {
  std::map<std::string, std::map<int64_t, float>> shown;
  for (const ReadEvent& event : events) {
    for (const auto& [tag, value] : event.scalars) {
      shown[tag][event.step] = value;
    }
    if (event.session_status != 1) continue;
    for (auto& [tag, points] : shown) {
      points.erase(points.lower_bound(event.step), points.end());
    }
  }
  return shown;
}

// The events of a file; a last record that is cut is left out. Throws
// std::runtime_error for a record whose checksums do not hold.
inline std::vector<ReadEvent> ReadEvents(const std::string& file) {
  auto number = [&](size_t at, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) {
      value = value << 8 | static_cast<unsigned char>(file[at + i]);
    }
    return value;
  };
  auto check = [&](size_t at, size_t size, size_t crc_at) {
    const uint32_t crc = BitwiseCrc32c(file.substr(at, size));
    const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8;
    if (masked != number(crc_at, 4)) throw std::runtime_error("checksum");
  };
  std::vector<ReadEvent> events;
  size_t at = 0;
  while (file.size() - at >= 12) {
    check(at, 8, at + 8);
    const uint64_t size = number(at, 8);
    if (file.size() - at < 16 + size) break;
    check(at + 12, size, at + 12 + size);
    events.push_back(ParseEvent(file.substr(at + 12, size)));
    at += 16 + size;
  }
  return events;
}

}  // namespace miniray::train

#endif  // MINIRAY_TESTS_TRAIN_EVENT_FILE_READER_H_
