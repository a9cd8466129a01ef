// The part of Api about trainings.

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "runtime/dashboard/answers.h"
#include "runtime/dashboard/api.h"
#include "runtime/dashboard/state_json.h"
#include "runtime/runs/run_checks.h"

namespace miniray {
namespace {

constexpr char kPngType[] = "image/png";
constexpr int64_t kUsualPoints = 500;
constexpr int64_t kMaxPoints = 5000;

}  // namespace

void Api::AddRunsTo(Routes* routes) {
  routes->Add("GET", "/api/v1/runs", Access::kData,
              [this](const Request&, const Args&, Response& response) {
                Runs(response);
              });
  routes->Add("GET", "/api/v1/runs/{}", Access::kData,
              [this](const Request& request, const Args& args,
                     Response& response) { Run(args[0], request, response); });
  routes->Add("GET", "/api/v1/runs/{}/images/{}", Access::kData,
              [this](const Request&, const Args& args, Response& response) {
                RunImage(args[0], args[1], response);
              });
  routes->Add("POST", "/api/v1/runs/{}/stop", Access::kWrite,
              [this](const Request&, const Args& args, Response& response) {
                StopRun(args[0], response);
              });
}

void Api::Runs(Response& response) const {
  if (!options_.list_runs) return Refuse(response, 404, kNoRuns);
  const absl::StatusOr<v1::ListRunsResponse> runs = options_.list_runs({});
  if (!runs.ok()) return Refuse(response, runs.status());
  Answer(response, MessageToJson(*runs, JsonStyle::kCompact));
}

void Api::Run(const std::string& id, const Request& request,
              Response& response) const {
  if (!options_.get_run) return Refuse(response, 404, kNoRuns);
  const absl::Status status = CheckRunId(id);
  if (!status.ok()) return Refuse(response, status);
  const absl::StatusOr<int64_t> points =
      IntParam(request, "points", 2, kMaxPoints, kUsualPoints);
  if (!points.ok()) return Refuse(response, points.status());
  const absl::StatusOr<bool> spans = BoolParam(request, "spans");
  if (!spans.ok()) return Refuse(response, spans.status());
  v1::GetRunRequest wanted;
  wanted.set_run_id(id);
  wanted.set_max_points(static_cast<int32_t>(*points));
  wanted.set_with_spans(*spans);
  const absl::StatusOr<v1::GetRunResponse> run = options_.get_run(wanted);
  if (!run.ok()) return Refuse(response, run.status());
  Answer(response, MessageToJson(*run, JsonStyle::kCompact));
}

void Api::RunImage(const std::string& id, const std::string& file,
                   Response& response) const {
  if (!options_.get_run_image) return Refuse(response, 404, kNoRuns);
  absl::Status status = CheckRunId(id);
  int64_t image_id = 0;
  absl::string_view number = file;
  if (status.ok() && (!absl::ConsumeSuffix(&number, ".png") ||
                      !absl::SimpleAtoi(number, &image_id) || image_id < 0)) {
    status = absl::InvalidArgumentError(
        "an image is named by its image_id and '.png', e.g. 7.png");
  }
  if (!status.ok()) return Refuse(response, status);
  v1::GetRunImageRequest wanted;
  wanted.set_run_id(id);
  wanted.set_image_id(image_id);
  absl::StatusOr<v1::GetRunImageResponse> image =
      options_.get_run_image(wanted);
  if (!image.ok()) return Refuse(response, image.status());
  Answer(response, std::move(*image->mutable_png()), kPngType);
}

void Api::StopRun(const std::string& id, Response& response) const {
  if (!options_.stop_run) return Refuse(response, 404, kNoRuns);
  const absl::Status status = CheckRunId(id);
  if (!status.ok()) return Refuse(response, status);
  v1::StopRunRequest wanted;
  wanted.set_run_id(id);
  const absl::StatusOr<v1::StopRunResponse> stopped = options_.stop_run(wanted);
  if (!stopped.ok()) return Refuse(response, stopped.status());
  Answer(response, MessageToJson(*stopped, JsonStyle::kCompact));
}

}  // namespace miniray
