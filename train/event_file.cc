#include "train/event_file.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/utf8.h"
#include "train/crc32c.h"
#include "train/tensorboard_event.pb.h"

namespace miniray::train {
namespace {

std::string LittleEndian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) {
    out.push_back(static_cast<char>(value >> (8 * i)));
  }
  return out;
}

std::string MaskedCrc(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return LittleEndian(((crc >> 15) | (crc << 17)) + 0xa282ead8u, 4);
}

std::string Record(const tensorboard::Event& event) {
  const std::string data = event.SerializeAsString();
  const std::string length = LittleEndian(data.size(), 8);
  return absl::StrCat(length, MaskedCrc(length), data, MaskedCrc(data));
}

double UnixSeconds(absl::Time time) {
  return static_cast<double>(absl::ToUnixMicros(time)) / 1e6;
}

// As the header says: it comes first, and of it the kind of colours behind
// signature, length, name, width, height and depth.
int ColourSpace(const std::string& png) {
  constexpr size_t kPlace = 8 + 4 + 4 + 4 + 4 + 1;
  switch (png.size() > kPlace ? png[kPlace] : 2) {
    case 0:
      return 1;
    case 4:
      return 2;
    case 6:
      return 4;
    default:
      return 3;
  }
}

std::string HostName() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return "localhost";
  std::string host = name;
  std::replace(host.begin(), host.end(), '/', '_');
  return host;
}

}  // namespace

absl::StatusOr<EventFile> EventFile::Create(const std::string& folder,
                                            absl::Time now) {
  MR_ASSIGN_OR_RETURN(AppendedFile file,
                      AppendedFile::Open(absl::StrFormat(
                          "%s/events.out.tfevents.%010d.%s", folder,
                          absl::ToUnixSeconds(now), HostName())));
  tensorboard::Event version;
  version.set_wall_time(UnixSeconds(now));
  version.set_file_version("brain.Event:2");
  MR_RETURN_IF_ERROR(file.Append(Record(version)));
  return EventFile(std::move(file));
}

absl::Status EventFile::AddStart(int64_t step, absl::Time time) {
  tensorboard::Event event;
  event.set_wall_time(UnixSeconds(time));
  event.set_step(step);
  event.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  return file_.Append(Record(event));
}

absl::Status EventFile::AddScalars(
    int64_t step, absl::Time time,
    const std::map<std::string, double>& scalars) {
  tensorboard::Event event;
  event.set_wall_time(UnixSeconds(time));
  event.set_step(step);
  for (const auto& [tag, value] : scalars) {
    auto* point = event.mutable_summary()->add_value();
    point->set_tag(ToUtf8(tag));
    point->set_simple_value(static_cast<float>(value));
  }
  return file_.Append(Record(event));
}

absl::Status EventFile::AddImage(int64_t step, absl::Time time,
                                 const std::string& tag, const std::string& png,
                                 int width, int height) {
  MR_RETURN_IF_ERROR(file_.Flush());
  tensorboard::Event event;
  event.set_wall_time(UnixSeconds(time));
  event.set_step(step);
  auto* const value = event.mutable_summary()->add_value();
  value->set_tag(ToUtf8(tag));
  auto* const image = value->mutable_image();
  image->set_height(height);
  image->set_width(width);
  image->set_colorspace(ColourSpace(png));
  image->set_encoded_image_string(png);
  return file_.Append(Record(event));
}

}  // namespace miniray::train
