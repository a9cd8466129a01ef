#include "runtime/runs/curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace miniray {
namespace {

constexpr size_t kFewestPoints = 8;
// Points of which two are made at a time; of fewer, as many would be left.
constexpr size_t kGroup = 4;

bool Lower(double a, double b) {
  if (std::isnan(a)) return false;
  return std::isnan(b) || a < b;
}

// Appends the lowest and the highest of points[begin, end), in their order; one
// if there is only one.
void AppendLowAndHigh(const std::vector<CurvePoint>& points, size_t begin,
                      size_t end, std::vector<CurvePoint>* thinned) {
  size_t low = begin;   // The first of those that are as low,
  size_t high = begin;  // and the last of those that are as high: never the
                        // same where there are two.
  for (size_t i = begin + 1; i < end; ++i) {
    if (Lower(points[i].value, points[low].value)) low = i;
    if (!Lower(points[i].value, points[high].value)) high = i;
  }
  thinned->push_back(points[std::min(low, high)]);
  if (low != high) thinned->push_back(points[std::max(low, high)]);
}

size_t AtLeast(size_t max_points) {
  return std::max(max_points, kFewestPoints);
}

}  // namespace

std::vector<CurvePoint> ThinPoints(const std::vector<CurvePoint>& points,
                                   size_t max_points) {
  max_points = std::max(max_points, size_t{4});
  if (points.size() <= max_points) return points;
  std::vector<CurvePoint> thinned;
  thinned.reserve(max_points);
  thinned.push_back(points.front());
  const size_t inner = points.size() - 2;
  const size_t groups = (max_points - 2) / 2;
  for (size_t i = 0; i < groups; ++i) {
    AppendLowAndHigh(points, 1 + i * inner / groups,
                     1 + (i + 1) * inner / groups, &thinned);
  }
  thinned.push_back(points.back());
  return thinned;
}

Curve::Curve(size_t max_points) : max_points_(AtLeast(max_points)) {}

void Curve::Group::Add(CurvePoint point) {
  if (count == 0 || Lower(point.value, low.value)) low = point;
  if (count == 0 || !Lower(point.value, high.value)) high = point;
  ++count;
}

void Curve::Group::AppendTo(std::vector<CurvePoint>* points) const {
  if (count == 0) return;
  if (count == 1) {
    points->push_back(low);
  } else {
    points->push_back(low.epoch <= high.epoch ? low : high);
    points->push_back(low.epoch <= high.epoch ? high : low);
  }
}

void Curve::Add(CurvePoint point) {
  ++num_points_;
  if (!empty() && point.epoch < last().epoch) {
    // Rare: two that report the same, or a clock of epochs that went back.
    Close();
    points_.insert(
        std::upper_bound(points_.begin(), points_.end(), point,
                         [](const CurvePoint& a, const CurvePoint& b) {
                           return a.epoch < b.epoch;
                         }),
        point);
    MakeRoom();
    return;
  }
  if (stride_ == 1) {
    if (points_.size() < max_points_) {
      points_.push_back(point);
      return;
    }
    Thin();
  }
  open_.Add(point);
  if (open_.count >= stride_) Close();
}

void Curve::Close() {
  open_.AppendTo(&points_);
  open_ = Group();
  MakeRoom();
}

void Curve::MakeRoom() {
  while (full()) Thin();
}

void Curve::Thin() {
  std::vector<CurvePoint> thinned;
  thinned.reserve(points_.size() / 2 + kGroup);
  for (size_t begin = 0; begin < points_.size(); begin += kGroup) {
    AppendLowAndHigh(points_, begin, std::min(begin + kGroup, points_.size()),
                     &thinned);
  }
  points_ = std::move(thinned);
  stride_ = stride_ == 1 ? static_cast<int64_t>(kGroup) : stride_ * 2;
}

void Curve::SetMaxPoints(size_t max_points) {
  max_points_ = AtLeast(max_points);
  if (full()) Close();
}

void Curve::Truncate(double epoch) {
  if (empty() || last().epoch <= epoch) return;
  const size_t before = size();
  // What becomes of a group that was begun is a group of its own.
  open_.AppendTo(&points_);
  open_ = Group();
  points_.erase(std::upper_bound(points_.begin(), points_.end(), epoch,
                                 [](double epoch, const CurvePoint& point) {
                                   return epoch < point.epoch;
                                 }),
                points_.end());
  // Of those that were thinned nobody knows; by their share of what is kept.
  num_points_ = stride_ == 1
                    ? static_cast<int64_t>(points_.size())
                    : static_cast<int64_t>(static_cast<double>(num_points_) *
                                           static_cast<double>(points_.size()) /
                                           static_cast<double>(before));
  if (points_.empty()) stride_ = 1;
  MakeRoom();
}

std::vector<CurvePoint> Curve::Points() const {
  std::vector<CurvePoint> points = points_;
  open_.AppendTo(&points);
  return points;
}

size_t Curve::size() const {
  return points_.size() +
         static_cast<size_t>(std::min<int64_t>(open_.count, 2));
}

CurvePoint Curve::last() const {
  if (open_.count == 0) return points_.back();
  return open_.low.epoch > open_.high.epoch ? open_.low : open_.high;
}

void Curve::Store(v1::StoredCurve* stored) const {
  for (const CurvePoint& point : points_) {
    stored->add_epochs(point.epoch);
    stored->add_values(point.value);
  }
  stored->set_stride(stride_);
  stored->set_num_points(num_points_);
  stored->set_open_count(open_.count);
  if (open_.count == 0) return;
  for (const CurvePoint& point : {open_.low, open_.high}) {
    stored->add_open_epochs(point.epoch);
    stored->add_open_values(point.value);
  }
}

Curve Curve::Load(const v1::StoredCurve& stored, size_t max_points) {
  Curve curve(max_points);
  const int num_points = std::min(stored.epochs_size(), stored.values_size());
  for (int i = 0; i < num_points; ++i) {
    curve.points_.push_back({stored.epochs(i), stored.values(i)});
  }
  curve.stride_ = std::max<int64_t>(stored.stride(), 1);
  curve.num_points_ = stored.num_points();
  if (stored.open_count() > 0 && stored.open_epochs_size() == 2 &&
      stored.open_values_size() == 2) {
    curve.open_ = {.low = {stored.open_epochs(0), stored.open_values(0)},
                   .high = {stored.open_epochs(1), stored.open_values(1)},
                   .count = stored.open_count()};
  }
  curve.SetMaxPoints(max_points);  // Another version may have kept more.
  return curve;
}

}  // namespace miniray
