#include "tools/cli/verbs.h"

#include <set>
#include <string>
#include <vector>

#include "tools/cli/job_verbs.h"
#include "tools/cli/run_verbs.h"
#include "tools/cli/start_flags.h"

namespace miniray::cli {
namespace {

constexpr char kStartHelp[] =
    R"(Starts a cluster's head, or a worker daemon that adds this machine to one.

  miniray start --head [FLAGS]
  miniray start --address HOST:PORT [FLAGS]

Returns once the process answers; it goes on in the background. Its output is in
a log whose path is printed. `miniray stop` ends it.

A head:
  --host IP           listen on this address (default 127.0.0.1: this machine
                      only; 0.0.0.0: all). Beyond loopback a token is made, and
                      printed with the command that adds a node.
  --port N            (default 6380; 0: any that is free)
  --dashboard_port N  on loopback (default 8266; 0: any that is free; -1: none);
                      /metrics is there too
  --num_cpus N        also start a worker daemon on this machine
  --state_dir DIR     its database, packages and saved actor states (default:
                      head-PORT in the runtime folder). A head that is started
                      where one was killed goes on with that one's cluster. It
                      takes host, port, token and certificates from there; what
                      is given must be the same. After `miniray stop` it is a
                      new cluster.
  --lease TIME        a node that is silent for so long is lost (default 10s)
  --driver_grace TIME what a driver whose connection broke has to come back
                      before its actors are stopped (default 2s)
  --max_restart_delay TIME  longest pause before an actor restarts whose
                      processes end soon after they have begun (default 30s) ...
  --long_life TIME    ... which is before they have lived so long (default 1m)
  --reconnect_timeout TIME  how long calls of drivers and actors wait for an
                      actor that lives, and what they ask of the head for it,
                      while it cannot be reached (default 60s); who kills an
                      actor waits 5s for the head at most
  --session_life TIME how long an actor remembers the calls of a caller whose
                      connection broke, at least --reconnect_timeout (default
                      5m)
  --max_reconnect_pause TIME  longest pause between two tries of a node or
                      driver to reach the head, 10ms to 1s (default 1s); never
                      more than a quarter of --lease or --driver_grace
  --infeasible_timeout TIME  after it, what no node could ever hold fails
                      (default 30s)
  --group_patience TIME  what a placement group waits before nodes are held for
                      it, where nothing younger starts then (default 10s) ...
  --group_hold TIME   ... and how long they are, before they are chosen anew, in
                      case what runs there never ends (default 30s)
  --package_limit N   bytes of programs and folders that it keeps (default
                      20 GiB); those least recently used, and needed by no
                      living actor or job, are removed beyond it
  --max_state_bytes N limit of the state that one actor saves (default 64 MiB)
  --max_waiting N     as many actors, placement groups and submitted jobs may
                      wait for room, each; more are refused (default 100000)

A worker daemon:
  --address HOST:PORT of the head
  --num_cpus N        CPUs it offers (default: those that this process may use)
  --num_gpus N        GPUs it offers (default 0): the first N that
                      CUDA_VISIBLE_DEVICES names, or devices 0 to N-1; what it
                      runs sees those that it was given
  --resources LIST    further ones: name=quantity,... ("memory" is in bytes;
                      default: the machine's, or its control group's)
  --labels LIST       name=value,... for actors that ask for nodes with them
  --shared_memory_mb N  memory that each actor process may lend to the others of
                      the machine, so that tensors need not be sent (default:
                      a quarter of that; 0: none)
  --object_store_bytes N   memory for values that are put (default: 30 % of
                      that); those least recently used go to disk then
  --object_spill_dir DIR   ... into this folder (default: in the session's)
  --node_ip IP        where its actors listen (default: the address from which
                      this machine reaches the head); beyond loopback the
                      cluster needs a token
  --fence_after TIME  without a word of the head for so long it ends what it
                      runs, which a living head has started elsewhere (default:
                      three leases)
  --headless_timeout TIME  how long its actors and jobs go on where the head is
                      dead (its port refuses connections) and may be started
                      again (default 1h)
  --connect_timeout TIME  how long it tries to reach the head before it gives up
                      its start (default 10s)
  --answer_timeout TIME   what the head may take to accept it, once there is a
                      connection, before it is dialled anew (default 20s)
  --fetch_timeout TIME  what the fetching of one program may take (default 10m)
  --stop_grace TIME   what an actor has to end before it is killed, and every
                      process when the daemon stops (default 1s)
  --job_stop_grace TIME  what a job's program has to end before it is killed
                      (default 5s)
  --drain_timeout TIME  how long the output of an ended process is read on where
                      something else holds it open (default 1s)
  --memory_period TIME  between two looks at the memory (default 250ms)
  --memory_limit X    part of the machine's (or its control group's) memory in
                      use beyond which the actor is killed that would free most
                      (default 0.95; 0: never)
  --metrics_port N    of /metrics for Prometheus, at the node's address (default
                      0: any that is free, which the head knows; -1: none); it
                      takes the cluster's token and certificates
  --package_cache_bytes N  room for programs fetched from the head; those that
                      no actor uses leave first (default 10 GiB)
  --log_max_bytes N   what an actor prints goes into files of this size (default
                      32 MiB) ...
  --log_files N       ... of which so many are kept (default 5)
  --log_total_bytes N of all logs together (default 10 GiB): beyond it the oldest
                      of processes that have ended are removed; of an actor that
                      is restarted again and again the last 10 are kept
  --inject_faults SPEC  for tests: lets calls of the worker daemon to the head
                      fail on purpose, e.g. Head/*:drop_request=0.1,delay=0.2@50ms
                      (also drop_reply=P, reset=P, limit=N; rules and ";seed=N"
                      are separated by ';'); $MINIRAY_FAULTS is for any program

Both:
  --silence_timeout TIME  a connection whose other end gives no sign of life for
                      so long is made anew, 2s to 24h (default:
                      $MINIRAY_SILENCE_TIMEOUT, else 20s). A daemon's actors
                      and jobs inherit it; other programs take the variable.
                      Longer on a network that stands still at times; less
                      than 20s for all of a cluster or for none
  --timeout SECONDS   time limit of the start (default: 20 more than
                      --connect_timeout); what was started is ended then. Not
                      with --block
  --token_file FILE   has the cluster's token (default: $MINIRAY_TOKEN, else
                      what is known from processes on this machine)
  --tls_dir DIR       has the certificates (see: miniray make-certs --help); all
                      of the cluster then speaks TLS (default:
                      $MINIRAY_TLS_DIR, else what is known from processes on
                      this machine)
  --block             stay in the foreground, log to stderr; SIGINT and SIGTERM
                      end it in good order

Exit codes: 0 it is ready, 1 it failed, 2 the command line is wrong, 124 the time
limit. A time is written like 500ms, 10s, 2m.

Examples:
  miniray start --head --num_cpus 4            # a cluster of this machine
  miniray start --head --host 0.0.0.0          # one that others may join
  miniray start --address 10.0.0.1:6380        # join it, on another machine
  miniray start --head --host 0.0.0.0 --tls_dir ~/certs
  miniray start --address 127.0.0.1:6380 --num_cpus 2 --resources slot=1
)";

constexpr char kStatusHelp[] =
    R"(Shows a cluster's nodes, actors, jobs and placement groups, and what waits.

  miniray status [FLAGS]

  --address HOST:PORT of the head (default: $MINIRAY_ADDRESS, else the head that
                      was started last on this machine)
  --format table|json (default table)
  --all               also dead actors and removed placement groups
  --watch             go on: in place on a terminal, until Ctrl-C or q; elsewhere
                      the tables again (json: a line) whenever they change
  --interval SECONDS  with --watch: between two looks (default 1)
  --timeout SECONDS   time limit (default 10; --watch: none)
  --token_file FILE   has the cluster's token (default: $MINIRAY_TOKEN, else
                      what is known from processes on this machine)
  --tls_dir DIR       has the certificates, where the cluster speaks TLS
                      (default: $MINIRAY_TLS_DIR, else as for the token)

Exit codes: 0 done, 1 it failed (no head there), 2 the command line is wrong, 124
the head does not answer within the time limit, or --watch went on for so long,
130 Ctrl-C.

Examples:
  miniray status
  miniray status --watch
  miniray status --address 10.0.0.1:6380 --format json
)";

constexpr char kStopHelp[] =
    R"(Stops every head and worker daemon that you started on this machine, of whatever
cluster, and the actors of the latter: all that have the same
$MINIRAY_RUNTIME_DIR (default: $TMPDIR/miniray-UID). Clusters that programs have
started for themselves are left to them, unless --address names one.

  miniray stop [FLAGS]

Asks them to stop and kills those that have not after a grace. Clusters whose
heads were killed on this machine end, too: the next head begins a new one.
Worker daemons on other machines go on until they are stopped there.

  --address HOST:PORT only the head there and the worker daemons of this machine
                      that joined it
  --force             kill at once
  --grace TIME        what they have to end before they are killed (default 10s);
                      more than the --stop_grace of the daemons
  --timeout SECONDS   wait no longer, and kill nothing after it (default: none;
                      the grace ends the waiting)

Exit codes: 0 all has ended, 1 something could not be ended, or there is nothing
at --address, 2 the command line is wrong, 124 the time limit.

Examples:
  miniray stop
  miniray stop --grace 1m
  miniray stop --address 127.0.0.1:6380
  miniray stop --force
)";

constexpr char kMakeCertsHelp[] =
    R"(Makes the certificates for a cluster that speaks TLS. Whoever shows one of them
belongs to the cluster, if they have its token too; host names play no part.

  miniray make-certs --tls_dir DIR [FLAGS]

Makes an authority (ca.crt, ca.key) in DIR unless it has one, and a certificate
that the authority signs (node.crt, node.key). Keys are readable by their owner
alone. Nothing is overwritten: to renew, remove node.crt and node.key first.

  --tls_dir DIR       where they go; created if missing
  --ca_dir DIR        has the authority's ca.crt and ca.key (default: --tls_dir)
  --days N            how long the node certificate is valid (default 365)

It asks nobody and waits for nothing: there is no time limit.

Copy ca.crt, node.crt and node.key to every machine of the cluster, or make a
certificate for each with --ca_dir. Keep ca.key away from them.

Examples:
  miniray make-certs --tls_dir ~/certs
  miniray make-certs --tls_dir ~/certs-of-node-2 --ca_dir ~/certs --days 90
  miniray start --head --host 0.0.0.0 --tls_dir ~/certs
)";

constexpr char kGeneralHelp[] =
    R"(Mini-Ray runs actors on the machines of a cluster.

  miniray start --head          start a head on this machine
  miniray start --address H:P   add this machine to the cluster of the head there
  miniray status                show nodes, actors and jobs
  miniray submit -- ./program   run a program in the cluster
  miniray job                   list, show, follow and stop jobs
  miniray list                  list nodes, actors, jobs, ... one by one
  miniray logs ACTOR|JOB        show what an actor or job printed
  miniray run                   list, show and stop trainings
  miniray top                   show what uses CPUs and memory, live
  miniray timeline              write finished calls and trainings as a trace
  miniray stop                  stop what was started on this machine
  miniray make-certs            make certificates, for a cluster that speaks TLS

  miniray VERB --help           flags and examples of a verb
  miniray --version
)";

std::set<std::string> StartFlags() {
  const std::vector<std::string> all = JoinFlags({{"head"},
                                                  HeadPlaceFlags(),
                                                  HeadTuningFlags(),
                                                  {"address"},
                                                  DaemonFlags(),
                                                  CommonFlags(),
                                                  {"timeout", "block"}});
  return {all.begin(), all.end()};
}

}  // namespace

const std::vector<Verb>& Verbs() {
  static const auto* const verbs = [] {
    auto* all = new std::vector<Verb>{
        {.name = "start",
         .help = kStartHelp,
         .flags = StartFlags(),
         .hidden_flags = {"ready_fd", "lifeline_fd", "detached"}},
        {.name = "status",
         .help = kStatusHelp,
         .flags = {"address", "all", "format", "interval", "timeout",
                   "token_file", "tls_dir", "watch"}},
        {.name = "stop",
         .help = kStopHelp,
         .flags = {"address", "force", "grace", "timeout"}},
        {.name = "make-certs",
         .help = kMakeCertsHelp,
         .flags = {"tls_dir", "ca_dir", "days"}},
    };
    std::vector<Verb> more = JobVerbs();
    const std::vector<Verb> run = RunVerbs();
    more.insert(more.end(), run.begin(), run.end());
    all->insert(all->begin() + 2, more.begin(), more.end());
    return all;
  }();
  return *verbs;
}

std::string GeneralHelp() { return kGeneralHelp; }

}  // namespace miniray::cli
