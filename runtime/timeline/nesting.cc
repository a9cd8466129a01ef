#include "runtime/timeline/nesting.h"

#include <algorithm>

namespace miniray {

void Nest(int max_rows, std::vector<Slice>* slices) {
  for (Slice& slice : *slices) slice.end = std::max(slice.end, slice.start);
  std::stable_sort(
      slices->begin(), slices->end(), [](const Slice& a, const Slice& b) {
        return a.start != b.start ? a.start < b.start : a.end > b.end;
      });
  // The ends of those that are open in each row, the innermost last.
  std::vector<std::vector<int64_t>> open(max_rows);
  for (Slice& slice : *slices) {
    for (slice.row = 0; slice.row < max_rows; ++slice.row) {
      std::vector<int64_t>& ends = open[slice.row];
      while (!ends.empty() && ends.back() <= slice.start) ends.pop_back();
      if (ends.empty() || slice.end <= ends.back()) break;
    }
    if (slice.row == max_rows) {
      --slice.row;
      slice.end = open[slice.row].back();
    }
    open[slice.row].push_back(slice.end);
  }
}

}  // namespace miniray
