#include "tools/cli/run_verbs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "tools/cli/verb_help.h"

namespace miniray::cli {
namespace {

constexpr char kRunHelp[] =
    R"(Shows and stops runs: trainings, as the programs that train report them. A run
is known by the name that was given to it (train --job-id), and is not a job: a
training that goes on from a checkpoint is the same run in another job.

  miniray run list [--filter FIELD=VALUE]... [--format table|json]
  miniray run status RUN [--format table|json]
  miniray run stop RUN [--wait]

Each has a help of its own: miniray run stop --help

States: running, stopping (asked to stop), finished, stopped, failed; lost: its
program ended, or has told nothing for a long time. The oldest run comes first.
`stop` lets the epoch that runs come to its end, with a checkpoint if the run
takes any; to end a program at once: miniray job stop.

  --filter FIELD=VALUE
                      only those; see: miniray list --help
  --format table|json (default table)
  --wait              stop: return once the run has ended
  --timeout SECONDS   time limit (default: 10; --wait: none)
)";

constexpr char kRunExamples[] =
    R"(
Examples:
  miniray run list
  miniray run list --filter state=running
  miniray run status gan-1 --format json
  miniray run stop gan-1 --wait
)";

constexpr char kRunListHelp[] =
    R"(Lists the runs that the head knows, the oldest first: state, epoch, progress,
rate, time left and loss. `miniray list runs` is the same.

  miniray run list [--filter FIELD=VALUE]... [FLAGS]

  --filter FIELD=VALUE
                      only those; see: miniray list --help
  --format table|json (default table; json is an array of records)
  --timeout SECONDS   time limit (default 10)
)";

constexpr char kRunListExamples[] =
    R"(
Examples:
  miniray run list
  miniray run list --filter state=running --format json
)";

constexpr char kRunStatusHelp[] =
    R"(Shows one run: how far it is, its workers, its parameter servers, the last value
of each metric. JSON has its curves too.

  miniray run status RUN [FLAGS]

  --format table|json (default table)
  --timeout SECONDS   time limit (default 10)
)";

constexpr char kRunStatusExamples[] =
    R"(
Examples:
  miniray run status gan-1
  miniray run status gan-1 --format json
)";

constexpr char kRunStopHelp[] =
    R"(Asks a run to end after the epoch that it is in, with a checkpoint if it takes
any. Returns at once, or with --wait when the run has ended; of one that had
already ended it says how.

  miniray run stop RUN [FLAGS]

  --wait              return once the run has ended
  --timeout SECONDS   time limit (default 10; --wait: none); the run still ends
)";

constexpr char kRunStopExamples[] =
    R"(
Examples:
  miniray run stop gan-1
  miniray run stop gan-1 --wait --timeout 600
)";

// Of all of them.
constexpr char kRunExitCodes[] =
    R"(
Exit codes: 0 done (stop: also where the run had already ended), 1 it failed (no
such run, no head), 2 the command line is wrong, 124 the time limit.
)";

constexpr char kTopHelp[] =
    R"(Shows what the nodes and actors of a cluster use, live: CPUs, memory, calls a
second, calls that wait. Of a node it is the whole machine; of an actor its
process, in which several actors may be. 100 % of an actor is one CPU. Nodes tell
it every two seconds; the actors on the screen are asked for their calls, and
have "-" where they cannot be reached from here.

  miniray top [FLAGS]

Keys: s sorts by the next column (CPU, memory, name), q quits. Where stdout is no
terminal: once, after one interval.

  --sort cpu|memory|name
                      at first (default cpu)
  --interval SECONDS  between two looks (default 1)
  --timeout SECONDS   time limit (default: none; no terminal: 10)
)";

constexpr char kTopExamples[] =
    R"(
Exit codes: 0 done, 1 it failed (no head there), 2 the command line is wrong, 124
the head does not answer within the time limit, or it went on for so long, 130
Ctrl-C.

Examples:
  miniray top
  miniray top --sort memory --interval 5
  miniray top --address 10.0.0.1:6380 > usage.txt
)";

constexpr char kTimelineHelp[] =
    R"(Writes what happened lately as a trace, which ui.perfetto.dev and
chrome://tracing show: the calls of actors that finished, a row for each actor's
process and in it a lane for each of its threads; and the epochs,
synchronisations and checkpoints of runs, a row for each run. Times are by the
head's clock, as far as the head knows how the nodes' clocks stand to it. Without
--job and --run: all calls that are kept, and the runs that went on meanwhile.

  miniray timeline [FLAGS]

  --output FILE       write there (default: stdout)
  --job JOB           only calls to this job's actors, and its runs
  --run RUN           only this run, and the calls of its job
  --format json|table (default json: the trace; table: what took how long, in
                      sums)
  --timeout SECONDS   time limit (default 30)
)";

constexpr char kTimelineExamples[] =
    R"(
Exit codes: 0 done, 1 it failed (no head there), 2 the command line is wrong, 124
the head does not answer within the time limit.

Examples:
  miniray timeline --output trace.json
  miniray timeline --job night-1 > trace.json
  miniray timeline --run gan-1 --output gan-1.json
  miniray timeline --format table
)";

std::string RunHelp(const char* text, const char* examples) {
  return HeadVerbHelp(text, absl::StrCat(kRunExitCodes, examples));
}

}  // namespace

std::vector<Verb> RunVerbs() {
  return {
      {.name = "run",
       .help = RunHelp(kRunHelp, kRunExamples),
       .help_on = {{"list", RunHelp(kRunListHelp, kRunListExamples)},
                   {"status", RunHelp(kRunStatusHelp, kRunStatusExamples)},
                   {"stop", RunHelp(kRunStopHelp, kRunStopExamples)}},
       .flags = WithHeadFlags({"format", "wait"}),
       .repeated_flags = {"filter"},
       .max_arguments = 2},
      {.name = "top",
       .help = HeadVerbHelp(kTopHelp, kTopExamples),
       .flags = WithHeadFlags({"interval", "sort"})},
      {.name = "timeline",
       .help = HeadVerbHelp(kTimelineHelp, kTimelineExamples),
       .flags = WithHeadFlags({"output", "job", "run", "format"})},
  };
}

}  // namespace miniray::cli
