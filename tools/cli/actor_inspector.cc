#include "tools/cli/actor_inspector.h"

#include <utility>

#include "absl/synchronization/blocking_counter.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "proto/actor.grpc.pb.h"
#include "runtime/rpc/channel.h"

namespace miniray::cli {
namespace {

struct Question {
  std::string actor_id;
  std::unique_ptr<v1::ActorService::Stub> stub;
  grpc::ClientContext context;
  v1::InspectRequest request;
  v1::InspectResponse response;
  bool answered = false;
};

}  // namespace

std::map<std::string, v1::InspectResponse> ActorInspector::Ask(
    const std::vector<v1::ActorInfo>& actors, absl::Duration timeout) {
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels;
  std::vector<std::unique_ptr<Question>> questions;
  for (const v1::ActorInfo& actor : actors) {
    if (actor.state() != v1::ACTOR_STATE_ALIVE || actor.address().empty()) {
      continue;
    }
    std::shared_ptr<grpc::Channel>& channel = channels[actor.address()];
    if (channel == nullptr) {
      const auto known = channels_.find(actor.address());
      channel = known == channels_.end() ? MakeChannel(actor.address())
                                         : known->second;
    }
    auto question = std::make_unique<Question>();
    question->actor_id = actor.actor_id();
    question->stub = v1::ActorService::NewStub(channel);
    question->request.set_actor_id(actor.actor_id());
    PrepareContext(&question->context, token_, timeout);
    questions.push_back(std::move(question));
  }
  absl::BlockingCounter left(static_cast<int>(questions.size()));
  for (const std::unique_ptr<Question>& owned : questions) {
    Question* const question = owned.get();
    question->stub->async()->Inspect(
        &question->context, &question->request, &question->response,
        [question, &left](const grpc::Status& status) {
          question->answered = status.ok();
          left.DecrementCount();
        });
  }
  // Each has its deadline.
  left.Wait();
  channels_ = std::move(channels);
  std::map<std::string, v1::InspectResponse> answers;
  for (const std::unique_ptr<Question>& question : questions) {
    if (!question->answered) continue;
    answers[question->actor_id] = std::move(question->response);
  }
  return answers;
}

}  // namespace miniray::cli
