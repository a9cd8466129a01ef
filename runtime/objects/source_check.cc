#include "runtime/objects/source_check.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>

namespace miniray {
namespace {

// Looks at copies without an answer of their source, until it counts as gone.
constexpr int kMaxSilences = 3;
// Questions under way at once: who is cut off keeps its asker for 10 s, and
// what is held elsewhere must not lapse meanwhile.
constexpr size_t kMaxAskers = 8;

std::vector<std::string> IdsOf(const std::vector<ObjectClaim>& claims) {
  std::vector<std::string> ids;
  ids.reserve(claims.size());
  for (const ObjectClaim& claim : claims) ids.push_back(claim.object_id);
  return ids;
}

}  // namespace

void SourceCheck::Run() {
  std::map<std::string, Question> by_source;
  for (auto& [source, ids] : table_->ListCopies()) {
    by_source[source].copies = std::move(ids);
  }
  for (auto& [source, claims] : holds_->Elsewhere()) {
    by_source[source].held = std::move(claims);
  }
  std::set<std::string> sources;
  for (const auto& [source, question] : by_source) sources.insert(source);
  copier_->Disconnect(sources);
  if (by_source.empty()) return;
  std::vector<Question> questions;
  for (auto& [source, question] : by_source) {
    question.source = source;
    questions.push_back(std::move(question));
  }
  std::atomic<size_t> next = 0;
  const auto ask = [&] {
    for (size_t i = next++; i < questions.size(); i = next++) {
      Ask(questions[i]);
    }
  };
  std::vector<std::thread> askers;
  for (size_t i = 1; i < std::min(kMaxAskers, questions.size()); ++i) {
    askers.emplace_back(ask);
  }
  ask();
  for (std::thread& asker : askers) asker.join();
}

void SourceCheck::Ask(const Question& question) {
  std::vector<std::string> missing;
  const absl::Status status = copier_->FindMissing(
      question.source, question.copies, question.held, &missing);
  int silences = 0;
  {
    absl::MutexLock lock(&mu_);
    if (status.ok()) {
      silences_.erase(question.source);
    } else {
      silences = ++silences_[question.source];
      if (silences >= ObjectHolds::kMaxAge ||
          (silences >= kMaxSilences && question.held.empty())) {
        silences_.erase(question.source);
      }
    }
  }
  if (status.ok()) {
    // What the processes here need no more was given back already, or lapses.
    holds_->Settle(question.source, question.held, missing);
    table_->Free(missing);
    return;
  }
  if (silences >= kMaxSilences) table_->Free(question.copies);
  if (silences >= ObjectHolds::kMaxAge && !question.held.empty()) {
    LOG(WARNING) << "the object store at " << question.source
                 << " has not answered " << silences << " times: the "
                 << question.held.size()
                 << " objects there that processes of this node refer to are "
                    "held no longer ("
                 << status.message() << ")";
    holds_->Settle(question.source, question.held, IdsOf(question.held));
  }
}

}  // namespace miniray
