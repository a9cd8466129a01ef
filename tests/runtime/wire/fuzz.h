// A small deterministic fuzzer: damaged copies of valid messages, and noise.

#ifndef MINIRAY_TESTS_RUNTIME_WIRE_FUZZ_H_
#define MINIRAY_TESTS_RUNTIME_WIRE_FUZZ_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/cord.h"

namespace miniray {

class Fuzzer {
 public:
  // `messages`: valid ones to start from.
  Fuzzer(uint64_t seed, std::vector<std::string> messages)
      : state_(seed), messages_(std::move(messages)) {}

  // In [0, limit). REQUIRES: limit > 0.
  size_t Below(size_t limit) { return static_cast<size_t>(Next() % limit); }

  // The next message: one in eight is noise, the others are damaged once to
  // four times.
  std::string Message() {
    if (Below(8) == 0) {
      std::string noise(Below(48), '\0');
      for (char& c : noise) c = static_cast<char>(Next());
      return noise;
    }
    std::string message = messages_[Below(messages_.size())];
    for (size_t i = Below(4) + 1; i > 0; --i) Damage(&message);
    return message;
  }

  // The bytes as a cord of one piece, or of several.
  absl::Cord AsCord(const std::string& bytes) {
    absl::Cord cord;
    const size_t piece = Below(4) == 0 ? Below(7) + 1 : bytes.size() + 1;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      auto* part = new std::string(bytes.substr(at, piece));
      cord.Append(absl::MakeCordFromExternal(
          *part, [part](absl::string_view) { delete part; }));
    }
    return cord;
  }

 private:
  // SplitMix64: Steele, Lea, Flood, OOPSLA 2014.
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  void Damage(std::string* message) {
    static constexpr unsigned char kInteresting[] = {0x00, 0x01, 0x7f,
                                                     0x80, 0x81, 0xff};
    const size_t at = Below(message->size() + 1);
    switch (Below(7)) {
      case 0:
        if (at < message->size()) (*message)[at] ^= char(1 << Below(8));
        break;
      case 1:
        if (at < message->size()) {
          (*message)[at] = static_cast<char>(kInteresting[Below(6)]);
        }
        break;
      case 2:
        message->insert(at, 1, static_cast<char>(Next()));
        break;
      case 3:
        message->erase(at, Below(8) + 1);
        break;
      case 4:  // A piece comes twice.
        message->insert(at, message->substr(at, Below(24) + 1));
        break;
      case 5:
        message->resize(at);
        break;
      case 6: {  // The end of another message.
        const std::string& other = messages_[Below(messages_.size())];
        message->replace(at, std::string::npos,
                         other.substr(Below(other.size() + 1)));
        break;
      }
    }
  }

  uint64_t state_;
  const std::vector<std::string> messages_;
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_RUNTIME_WIRE_FUZZ_H_
