// The grammar of fault specifications.

#include <google/protobuf/descriptor.h>

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/actor.pb.h"
#include "proto/head.pb.h"
#include "proto/object.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/rpc/fault_injector.h"

namespace miniray {
namespace {

using ::google::protobuf::ServiceDescriptor;

constexpr absl::Duration kMaxDelay = absl::Minutes(10);

std::vector<const ServiceDescriptor*> Services() {
  std::vector<const ServiceDescriptor*> services;
  for (const auto* file : {v1::RenewLeaseRequest::descriptor()->file(),
                           v1::CallFrame::descriptor()->file(),
                           v1::ObjectChunk::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      services.push_back(file->service(i));
    }
  }
  return services;
}

// Reads a text piece by piece and knows where it is.
class Reader {
 public:
  explicit Reader(absl::string_view text) : text_(text), rest_(text) {
    SkipSpace();
  }

  bool AtEnd() const { return rest_.empty(); }

  bool Take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    SkipSpace();
    return true;
  }

  // What comes before the next of `ends`, or the end.
  absl::string_view Word(absl::string_view ends) {
    mark_ = text_.size() - rest_.size();
    const absl::string_view word = rest_.substr(0, rest_.find_first_of(ends));
    rest_.remove_prefix(word.size());
    return absl::StripTrailingAsciiWhitespace(word);
  }

  // About the last word, or about what is next if there was none.
  absl::Status WordError(absl::string_view what) const {
    return Error(mark_, what);
  }
  absl::Status NextError(absl::string_view what) const {
    return Error(text_.size() - rest_.size(), what);
  }

 private:
  absl::Status Error(size_t at, absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("at character ", at + 1, " of '", text_, "': ", what));
  }

  void SkipSpace() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  const absl::string_view text_;
  absl::string_view rest_;
  size_t mark_ = 0;
};

absl::Status ReadProbability(Reader* reader, double* probability) {
  const absl::string_view word = reader->Word(",;@");
  if (!absl::SimpleAtod(word, probability) || !(*probability >= 0) ||
      *probability > 1) {
    return reader->WordError(
        absl::StrCat("'", word, "' is not a probability in [0, 1]"));
  }
  return absl::OkStatus();
}

absl::Status ReadFault(Reader* reader, FaultRule* rule) {
  const std::string name(reader->Word("=,;"));
  double* probability = nullptr;
  if (name == "drop_request") probability = &rule->drop_request;
  if (name == "drop_reply") probability = &rule->drop_reply;
  if (name == "delay") probability = &rule->delay;
  if (name == "reset") probability = &rule->reset;
  if (probability == nullptr && name != "limit") {
    return reader->WordError(absl::StrCat(
        "'", name,
        "' is no fault; there are drop_request, drop_reply, delay, reset and "
        "limit"));
  }
  if (!reader->Take('=')) {
    return reader->NextError(absl::StrCat("expected '=' after ", name));
  }
  if (name == "limit") {
    const absl::string_view word = reader->Word(",;");
    if (!absl::SimpleAtoi(word, &rule->limit) || rule->limit < 0) {
      return reader->WordError(absl::StrCat("'", word, "' is not a number"));
    }
    return absl::OkStatus();
  }
  MR_RETURN_IF_ERROR(ReadProbability(reader, probability));
  if (name != "delay") return absl::OkStatus();
  if (!reader->Take('@')) {
    return reader->NextError("expected '@' and a time, as in delay=0.1@50ms");
  }
  const absl::string_view word = reader->Word(",;");
  if (!absl::ParseDuration(word, &rule->delay_time) ||
      rule->delay_time < absl::ZeroDuration() || rule->delay_time > kMaxDelay) {
    return reader->WordError(absl::StrCat(
        "'", word, "' is not a time of at most ",
        absl::FormatDuration(kMaxDelay), ", such as 50ms or 1.5s"));
  }
  return absl::OkStatus();
}

// "Head/CreateActor", "Head/*", "CreateActor" or "*".
absl::Status SetMethod(absl::string_view name, const Reader& reader,
                       FaultRule* rule) {
  if (name == "*") return absl::OkStatus();
  absl::string_view service, method = name;
  if (const size_t slash = name.find('/'); slash != absl::string_view::npos) {
    service = name.substr(0, slash);
    method = name.substr(slash + 1);
  }
  std::vector<std::string> names;
  bool known = false;
  for (const ServiceDescriptor* candidate : Services()) {
    names.push_back(candidate->name());
    if (!service.empty() && candidate->name() != service) continue;
    known = known || method == "*" ||
            candidate->FindMethodByName(std::string(method)) != nullptr;
  }
  if (!known || (service.empty() && method.size() != name.size())) {
    return reader.WordError(
        absl::StrCat("there is no method '", name, "'; services are ",
                     absl::StrJoin(names, ", "), ", their methods in proto/"));
  }
  rule->service = std::string(service);
  if (method != "*") rule->method = std::string(method);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FaultSpec> ParseFaultSpec(absl::string_view text) {
  FaultSpec spec;
  Reader reader(text);
  while (!reader.AtEnd()) {
    const std::string name(reader.Word(":=;,"));
    if (name == "seed") {
      if (!reader.Take('=')) return reader.NextError("expected '=' after seed");
      const absl::string_view word = reader.Word(";");
      if (!absl::SimpleAtoi(word, &spec.seed)) {
        return reader.WordError(absl::StrCat("'", word, "' is not a number"));
      }
    } else {
      FaultRule rule;
      MR_RETURN_IF_ERROR(SetMethod(name, reader, &rule));
      if (!reader.Take(':')) {
        return reader.NextError(
            "expected ':' and faults, as in Head/*:delay=0.1@50ms");
      }
      do {
        MR_RETURN_IF_ERROR(ReadFault(&reader, &rule));
      } while (reader.Take(','));
      spec.rules.push_back(std::move(rule));
    }
    if (!reader.AtEnd() && !reader.Take(';')) {
      return reader.NextError("expected ',' or ';'");
    }
  }
  return spec;
}

}  // namespace miniray
