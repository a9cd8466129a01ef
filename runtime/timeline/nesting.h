// Spans in rows in which each lies within another one or beside it: what
// viewers of traces can show of one thread.

#ifndef MINIRAY_RUNTIME_TIMELINE_NESTING_H_
#define MINIRAY_RUNTIME_TIMELINE_NESTING_H_

#include <cstdint>
#include <string>
#include <vector>

namespace miniray {

struct Slice {
  std::string name;
  int64_t start = 0;
  int64_t end = 0;
  int row = 0;
};

// Sorts them by start, of the same start the longest first, and puts each into
// the first row where it fits. What fits into none of `max_rows` ends earlier:
// with the slice of the last row in which it begins. An end before the start
// becomes the start.
//
// max_rows: 1 or more.
void Nest(int max_rows, std::vector<Slice>* slices);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_TIMELINE_NESTING_H_
