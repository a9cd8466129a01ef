// Runs a benchmark program, small, and looks at the form of what it says; not
// at the figures, which mean nothing on a busy machine.

#ifndef MINIRAY_TESTS_TOOLS_BENCH_RUN_BENCH_H_
#define MINIRAY_TESTS_TOOLS_BENCH_RUN_BENCH_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace miniray {

// Runs one round of tools/bench/`name` with `flags`. Fails the test unless it
// measured every row, each with a figure above zero (or what it says is not
// installed), and left no process or file behind. Returns the rows by "what".
nlohmann::json RunBench(const std::string& name,
                        std::vector<std::string> flags);

}  // namespace miniray

#endif  // MINIRAY_TESTS_TOOLS_BENCH_RUN_BENCH_H_
