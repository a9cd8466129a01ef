#include "runtime/worker/head_watch.h"

#include <glog/logging.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/worker/lease_stream.h"

namespace miniray {
namespace {

// Leases without contact after which a node ends its actors by itself.
constexpr int kFenceLeases = 3;
// Of the lease: how long the head's machine may take to refuse a connection.
constexpr double kPatience = 0.25;

// Neither stepped nor running while the machine is suspended: what a leap of
// the clock shows is no silence of the head.
absl::Duration MonotonicNow() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace

HeadWatch::HeadWatch(Options options,
                     std::function<void(const std::string& why)> on_cut_off)
    : options_(std::move(options)),
      on_cut_off_(std::move(on_cut_off)),
      last_(MonotonicNow()),
      thread_([this] { Loop(); }) {}

HeadWatch::~HeadWatch() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  thread_.join();
}

void HeadWatch::OnRenewal(const grpc::Status& status, absl::Duration lease) {
  absl::MutexLock lock(&mu_);
  const absl::Duration now = MonotonicNow();
  // A step lasts less than a lease. One that lasted longer is a time in which
  // this process stood still, and the head was not listened to.
  const absl::Duration step = std::min(now - std::exchange(last_, now), lease);
  if (!news_.has_value()) news_.emplace();
  news_->lease = lease;
  if (status.ok() || status.error_code() == grpc::StatusCode::NOT_FOUND) {
    *news_ = {.heard = true, .lease = lease};
  } else {
    news_->unheard += step;
    news_->failure = status;
  }
}

void HeadWatch::Loop() {
  // Since the last contact: all of it, and what of it nobody refused us.
  absl::Duration alone, silence;
  bool gone_before = false;
  while (true) {
    News news;
    {
      absl::MutexLock lock(&mu_);
      auto any = [this] {
        mu_.AssertHeld();
        return stopping_ || news_.has_value();
      };
      mu_.Await(absl::Condition(&any));
      if (stopping_) return;
      news = *std::exchange(news_, std::nullopt);
    }
    if (news.heard) alone = silence = absl::ZeroDuration();
    const bool gone = HeadIsGone(news);
    if (gone && !gone_before) {
      LOG(WARNING) << "no head listens at "
                   << JoinHostPort(options_.head.host, options_.head.port)
                   << " any more: what runs here goes on, and waits for it to "
                      "be started again for "
                   << absl::FormatDuration(options_.headless_timeout);
    } else if (news.failure.has_value() && !gone) {
      LOG(WARNING) << "lease not renewed: " << news.failure->error_message();
    }
    gone_before = gone;
    alone += news.unheard;
    if (!gone) silence += news.unheard;
    const absl::Duration fence = options_.fence_after > absl::ZeroDuration()
                                     ? options_.fence_after
                                     : kFenceLeases * news.lease;
    if (silence > fence || alone > options_.headless_timeout) {
      on_cut_off_(absl::StrCat("no contact with the head for ",
                               absl::FormatDuration(alone)));
      alone = silence = absl::ZeroDuration();
      absl::MutexLock lock(&mu_);
      news_.reset();  // Of the time in which that was under way.
    }
  }
}

bool HeadWatch::HeadIsGone(const News& news) const {
  return news.failure.has_value() && IsSilence(*news.failure) &&
         RefusesConnections(options_.head, kPatience * news.lease);
}

}  // namespace miniray
