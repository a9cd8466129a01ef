// FiniteResult: what a strategy also derives from to spare the server a pass
// over its result, which is otherwise read once more to see that it is finite.

#ifndef MINIRAY_PS_FINITE_RESULT_H_
#define MINIRAY_PS_FINITE_RESULT_H_

namespace miniray::ps {

class FiniteResult {
 public:
  virtual ~FiniteResult() = default;

  // True if the strategy has looked at all values of what Aggregate returned
  // last, and each is finite. False also where it does not know.
  virtual bool ResultIsFinite() const = 0;
};

}  // namespace miniray::ps

#endif  // MINIRAY_PS_FINITE_RESULT_H_
