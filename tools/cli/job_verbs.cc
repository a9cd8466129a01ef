#include "tools/cli/job_verbs.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/cli/verb_help.h"

namespace miniray::cli {
namespace {

constexpr char kSubmitHelp[] =
    R"(Runs a program in a cluster: sends it, and a folder if you like, to a node and
runs it there as a driver.

  miniray submit [FLAGS] -- ./program [ARGUMENT...]

Waits, shows what the program prints (stdout and stderr together) and exits with
its exit code; 128 + N where signal N ended it, 1 where it never ran. Ctrl-C
ends the waiting, not the job. The program finds the cluster by itself
(miniray::Cluster::Connect) and starts in the folder, or in an empty one, which
is removed when it ends: what shall stay goes to an absolute path.

  --no_wait           return at once; prints the job's id
  --job_id ID         call the job so (default: one is made up)
  --num_cpus N        resources of the program itself, not of its actors
  --num_gpus N        (default 0)
  --resources LIST    further ones: name=quantity,...
  --env NAME=VALUE    set for the program; may come several times
  --working_dir DIR   send this folder too, without .git; sent again only if
                      something in it changed
  --max_folder_bytes N
                      refuse a larger folder (default 524288000)
  --timeout SECONDS   wait no longer (default: for ever); the job goes on
  --head_patience SECONDS
                      how long to wait for a head that does not answer, also
                      to send it the program; it may be started again (default
                      60)
  --wait              the default
)";

constexpr char kSubmitExamples[] =
    R"(
Exit codes: the program's; 1 it never ran, or the job's end is unknown: the head
was stopped, or is away for longer than --head_patience; 2 the command line is
wrong; 124 the time limit; 130 Ctrl-C. What the node's disk did not take of the
output is told on stderr, and changes no exit code.

Examples:
  miniray submit -- ./my_trainer --epochs 10
  miniray submit --address 10.0.0.1:6380 --num_cpus 2 --env SEED=1 -- ./trainer
  miniray submit --working_dir . --no_wait --job_id night-1 -- ./trainer
)";

constexpr char kJobHelp[] =
    R"(Shows and stops jobs: programs that were submitted, or that connected by
themselves.

  miniray job list [--filter FIELD=VALUE]... [--format table|json]
  miniray job status JOB [--format table|json]
  miniray job logs JOB [--follow] [--tail N]
  miniray job stop JOB

Each has a help of its own: miniray job stop --help

States: pending, running, succeeded, failed, stopped; a driver that connected by
itself has just `ended`: how, only who started it knows. EXIT is "-" where there
is no exit code: the program never ran, or its node was lost. The oldest job
comes first: by its start, or by its submission before that. `stop` also ends
the job's actors, and returns once the job has ended; of one that had already
ended it says how.

  --filter FIELD=VALUE
                      only those; see: miniray list --help
  --format table|json (default table)
  --follow            go on until the program has ended
  --tail N            only the last N lines (default: all)
  --timeout SECONDS   time limit (default: 10; stop: 30; logs: 600; --follow:
                      none)
  --head_patience SECONDS
                      logs: how long to wait for a head that does not answer any
                      more (default 60); then they go on where they were
)";

constexpr char kJobExamples[] =
    R"(
Exit codes: 0 done (stop: also where the job had already ended), 1 it failed (no
such job, no head), 2 the command line is wrong, 124 the time limit.

Examples:
  miniray job list
  miniray job list --filter state=running
  miniray job status night-1 --format json
  miniray job logs night-1 --follow
  miniray job stop night-1
)";

constexpr char kJobListHelp[] =
    R"(Lists the jobs of a cluster, the oldest first.

  miniray job list [--filter FIELD=VALUE]... [FLAGS]

  --filter FIELD=VALUE
                      only those; see: miniray list --help
  --format table|json (default table)
  --timeout SECONDS   time limit (default 10)
)";

constexpr char kJobListExamples[] =
    R"(
Examples:
  miniray job list
  miniray job list --filter state=running
  miniray job list --filter state=failed --format json
)";

constexpr char kJobStatusHelp[] =
    R"(Shows one job: its state and why, where it runs, its command, its times, its
log, and what of its output was lost so far.

  miniray job status JOB [FLAGS]

  --format table|json (default table)
  --timeout SECONDS   time limit (default 10)
)";

constexpr char kJobStatusExamples[] =
    R"(
Examples:
  miniray job status night-1
  miniray job status night-1 --format json
)";

constexpr char kJobLogsHelp[] =
    R"(Shows what a submitted job's program printed, also after its end.

  miniray job logs JOB [FLAGS]

  --follow            go on as it is written, until the program has ended
  --tail N            only the last N lines (default: all that is kept)
  --timeout SECONDS   time limit (default: 600; --follow: none)
  --head_patience SECONDS
                      how long to wait for a head that does not answer any more
                      (default 60); then it goes on where it was
)";

constexpr char kJobLogsExamples[] =
    R"(
Examples:
  miniray job logs night-1
  miniray job logs night-1 --follow --tail 20
)";

constexpr char kJobStopHelp[] =
    R"(Stops a job, running or waiting, with its actors. The program gets SIGTERM, and
SIGKILL after the grace of its node (miniray start --job_stop_grace). Returns
once the job has ended; of one that had already ended it says how.

  miniray job stop JOB [FLAGS]

  --timeout SECONDS   wait no longer (default 30); the job still ends
)";

constexpr char kJobStopExamples[] =
    R"(
Examples:
  miniray job stop night-1
  miniray job stop night-1 --address 10.0.0.1:6380 --timeout 5
)";

// Of all four.
constexpr char kJobExitCodes[] =
    R"(
Exit codes: 0 done (stop: also where the job had already ended), 1 it failed (no
such job, no head), 2 the command line is wrong, 124 the time limit.
)";

constexpr char kListHelp[] =
    R"(Lists one of a cluster's tables.

  miniray list nodes|actors|jobs|runs|placement-groups|packages [FLAGS]

The oldest come first: nodes, jobs and runs by their start, actors and placement
groups by their creation.

  --filter FIELD=VALUE
                      only records whose field has this value; several must all
                      hold. Fields are those of --format json; states are
                      written like "alive". Jobs that are "succeeded" were
                      submitted, those that are "ended" were not.
  --format table|json (default table; json is an array of records)
  --timeout SECONDS   time limit (default 10)
)";

constexpr char kListExamples[] =
    R"(
Exit codes: 0 done, 1 it failed (no head there), 2 the command line is wrong, 124
the head does not answer within the time limit.

Examples:
  miniray list nodes
  miniray list actors --filter state=alive --filter class_name=Counter
  miniray list jobs --format json
  miniray list runs
  miniray list placement-groups --filter strategy=spread
)";

constexpr char kLogsHelp[] =
    R"(Shows what an actor or a submitted job's program printed, also after its end.

  miniray logs ACTOR|JOB [FLAGS]

ACTOR is an actor's id or name, JOB a job's id; the beginning of an id will do
where no other begins like it.

  --follow            go on as it is written, until the process has ended
  --tail N            only the last N lines (default: all that is kept)
  --timeout SECONDS   time limit (default: 600; --follow: none)
  --head_patience SECONDS
                      how long to wait for a head that does not answer any more
                      (default 60); then it goes on where it was
)";

constexpr char kLogsExamples[] =
    R"(
Exit codes: 0 all was shown, 1 it failed (no such log, its node is gone), 2 the
command line is wrong, 124 the time limit.

Examples:
  miniray logs my_counter --follow
  miniray logs actor-0123 --tail 20
  miniray logs night-1
)";

std::string JobHelp(const char* text, const char* examples) {
  return HeadVerbHelp(text, absl::StrCat(kJobExitCodes, examples));
}

}  // namespace

std::vector<Verb> JobVerbs() {
  return {
      {.name = "submit",
       .help = HeadVerbHelp(kSubmitHelp, kSubmitExamples),
       .flags =
           WithHeadFlags({"wait", "job_id", "num_cpus", "num_gpus", "resources",
                          "working_dir", "max_folder_bytes", "head_patience"}),
       .repeated_flags = {"env"},
       .takes_command = true},
      {.name = "job",
       .help = HeadVerbHelp(kJobHelp, kJobExamples),
       .help_on = {{"list", JobHelp(kJobListHelp, kJobListExamples)},
                   {"status", JobHelp(kJobStatusHelp, kJobStatusExamples)},
                   {"logs", JobHelp(kJobLogsHelp, kJobLogsExamples)},
                   {"stop", JobHelp(kJobStopHelp, kJobStopExamples)}},
       .flags = WithHeadFlags({"format", "follow", "tail", "head_patience"}),
       .repeated_flags = {"filter"},
       .max_arguments = 2},
      {.name = "list",
       .help = HeadVerbHelp(kListHelp, kListExamples),
       .flags = WithHeadFlags({"format"}),
       .repeated_flags = {"filter"},
       .max_arguments = 1},
      {.name = "logs",
       .help = HeadVerbHelp(kLogsHelp, kLogsExamples),
       .flags = WithHeadFlags({"follow", "tail", "head_patience"}),
       .max_arguments = 1},
  };
}

}  // namespace miniray::cli
