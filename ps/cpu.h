// What the CPU at hand can do, for kernels with code of their own for it.

#ifndef MINIRAY_PS_CPU_H_
#define MINIRAY_PS_CPU_H_

namespace miniray::ps {

// MR_AVX2 before a function compiles it for CPUs that have AVX2; call it where
// HasAvx2() alone. Not FMA: it rounds differently from the portable code.
#if defined(__x86_64__)
#define MR_AVX2 [[gnu::target("avx2")]]
inline bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#else
#define MR_AVX2
inline bool HasAvx2() { return false; }
#endif

}  // namespace miniray::ps

#endif  // MINIRAY_PS_CPU_H_
