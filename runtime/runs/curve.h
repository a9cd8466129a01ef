// A curve of a training that never takes more than so much memory: it is
// thinned as it grows, so that its shape stays.

#ifndef MINIRAY_RUNTIME_RUNS_CURVE_H_
#define MINIRAY_RUNTIME_RUNS_CURVE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/run_state.pb.h"

namespace miniray {

struct CurvePoint {
  double epoch = 0;
  double value = 0;

  bool operator==(const CurvePoint&) const = default;
};

// Of groups of neighbours, the lowest and the highest, in their order; the
// first and the last point stay. NaN counts as higher than all numbers, so that
// it is not lost. Returns `points` if there are no more than max_points, and at
// most so many in any case.
//
// max_points: >= 4; taken for 4 if less.
std::vector<CurvePoint> ThinPoints(const std::vector<CurvePoint>& points,
                                   size_t max_points);

// Points by increasing epoch. All are kept up to max_points; beyond, of groups
// of as many neighbours the lowest and the highest: of 4 in the whole curve,
// and of twice as many each time that these are too many. So old and new ones
// are thinned alike, and each kept point is one that was added.
//
// Not thread-safe.
class Curve {
 public:
  // max_points: at least 8.
  explicit Curve(size_t max_points);

  void Add(CurvePoint point);
  // Forgets the points behind `epoch`.
  void Truncate(double epoch);
  // Thins, if need be.
  void SetMaxPoints(size_t max_points);

  // Those that are kept.
  std::vector<CurvePoint> Points() const;
  // How many these are: never more than max_points.
  size_t size() const;
  bool empty() const { return size() == 0; }
  // REQUIRES: not empty.
  CurvePoint last() const;
  // How many were added, but for those that were forgotten.
  int64_t num_points() const { return num_points_; }

  // Metric and worker are the caller's.
  void Store(v1::StoredCurve* stored) const;
  static Curve Load(const v1::StoredCurve& stored, size_t max_points);

 private:
  // Points that will become two.
  struct Group {
    CurvePoint low;
    CurvePoint high;
    int64_t count = 0;  // 0: there are none.

    void Add(CurvePoint point);
    void AppendTo(std::vector<CurvePoint>* points) const;
  };

  // Whether there are too many, or will be with another group.
  bool full() const {
    return points_.size() + (stride_ == 1 ? 0 : 2) > max_points_;
  }
  void Close();
  void MakeRoom();
  // Makes of each four points two.
  void Thin();

  size_t max_points_;
  std::vector<CurvePoint> points_;
  int64_t stride_ = 1;  // Points of a group.
  Group open_;          // Behind points_. Empty if stride_ is 1.
  int64_t num_points_ = 0;
};

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_RUNS_CURVE_H_
