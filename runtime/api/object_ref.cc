#include "runtime/api/object_ref.h"

#include "absl/strings/str_cat.h"
#include "runtime/client/client.h"

namespace miniray {
namespace internal {
namespace {

// Collects the references that this thread encodes.
constinit thread_local ReferenceHolds* current_holds = nullptr;
// And those that it decodes.
constinit thread_local ArrivedReferences* current_arrivals = nullptr;

}  // namespace

ArrivedReferences::ArrivedReferences() : outer_(current_arrivals) {
  current_arrivals = this;
}

void ArrivedReferences::Hold() {
  current_arrivals = outer_;
  if (references_.empty()) return;
  const std::shared_ptr<Client> client = Client::Current();
  if (client == nullptr) return;
  std::vector<absl::Cord> encoded;
  encoded.reserve(references_.size());
  for (const auto& reference : references_) {
    encoded.push_back(*reference->Wait(absl::ZeroDuration()));
  }
  std::vector<std::shared_ptr<void>> holds = client->HoldObjects(encoded);
  for (size_t i = 0; i < holds.size(); ++i) {
    references_[i]->Hold(std::move(holds[i]));
  }
}

ReferenceHolds::ReferenceHolds() : outer_(current_holds) {
  current_holds = this;
}

ReferenceHolds::~ReferenceHolds() { current_holds = outer_; }

absl::Status NotByReference(const CallState& call) {
  return absl::InvalidArgumentError(absl::StrCat(
      "an ObjectRef travels only if its value lies where others can fetch it: "
      "make ",
      call.description(),
      " with CallOptions{.keep_result = true}, or use Put; to pass its result, "
      "give the ObjectRef where the parameter is the value's own type"));
}

absl::Status EncodeObjectRef(const std::shared_ptr<CallState>& call,
                             WireWriter* out) {
  if (call == nullptr) return absl::FailedPreconditionError("empty ObjectRef");
  if (!call->by_reference()) return NotByReference(*call);
  if (!call->done()) {
    return absl::FailedPreconditionError(absl::StrCat(
        call->description(),
        " is not done: Wait for it before it travels inside of another value"));
  }
  MR_ASSIGN_OR_RETURN(absl::Cord reference, call->Wait(absl::ZeroDuration()));
  if (current_holds != nullptr) current_holds->calls.push_back(call);
  out->Raw(std::move(reference));
  return absl::OkStatus();
}

absl::Status DecodeObjectRef(const ValueView& view,
                             std::shared_ptr<CallState>* out) {
  if (view.kind != ValueKind::kObject) {
    return view.Mismatch("a reference to an object");
  }
  WireWriter reference;
  reference.Bytes(static_cast<int>(ValueKind::kObject), view.field.bytes);
  *out = std::make_shared<CallState>("an object that was passed");
  (*out)->set_by_reference(Client::Current());
  (*out)->Complete(std::move(reference).Take());
  if (current_arrivals != nullptr) {
    current_arrivals->Add(*out);
  } else {
    ArrivedReferences().Add(*out);
  }
  return absl::OkStatus();
}

absl::StatusOr<FetchedValue> ResolveReference(const absl::Cord& reference) {
  const std::shared_ptr<Client> client = Client::Current();
  if (client == nullptr) {
    return absl::FailedPreconditionError(
        "this process has no connection to a cluster to fetch objects with");
  }
  return client->FetchObject(reference, absl::InfiniteDuration(),
                             /*alone=*/false);
}

}  // namespace internal
}  // namespace miniray
