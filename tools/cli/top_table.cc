#include "tools/cli/top_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/cli/table_format.h"

namespace miniray::cli {
namespace {

using UsageByActor = std::map<std::string, const v1::ActorUsage*>;

std::string OrderName(TopOrder order) {
  switch (order) {
    case TopOrder::kCpu:
      return "cpu";
    case TopOrder::kMemory:
      return "memory";
    default:
      return "name";
  }
}

UsageByActor ByActor(const TopSample& sample) {
  UsageByActor usage;
  for (const v1::ActorUsage& actor : sample.usage.actors()) {
    usage[actor.actor_id()] = &actor;
  }
  return usage;
}

std::string NameOf(const v1::ActorInfo& actor) {
  if (actor.name().empty()) return actor.actor_id();
  return actor.actor_namespace().empty()
             ? actor.name()
             : absl::StrCat(actor.actor_namespace(), "/", actor.name());
}

// What came from elsewhere may be anything.
double Sane(double cpus) {
  // NaN fails the comparison.
  return cpus > 0 ? std::min(cpus, 1e6) : 0.0;
}

// Of one CPU: more than 100 for what keeps several busy.
std::string CpuText(double cpus) {
  return absl::StrFormat("%.0f %%", Sane(cpus) * 100);
}

std::string MemoryText(int64_t bytes) {
  const auto mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? absl::StrFormat("%.0fMiB", mib)
                    : Bytes(static_cast<double>(bytes));
}

std::string RateText(double per_second) {
  if (per_second < 0) return "";
  return absl::StrFormat(per_second < 10 ? "%.1f" : "%.0f", per_second);
}

// "3 alive, 1 pending", in the order of the states.
template <class Records>
std::string States(const Records& records, std::string (*word)(int)) {
  std::map<int, int> counts;
  for (const auto& record : records) ++counts[record.state()];
  std::vector<std::string> words;
  for (const auto& [state, count] : counts) {
    words.push_back(absl::StrCat(count, " ", word(state)));
  }
  return words.empty() ? "none" : absl::StrJoin(words, ", ");
}

std::string NodeWord(int state) {
  return StateWord(v1::NodeState_Name(static_cast<v1::NodeState>(state)),
                   "NODE_STATE_");
}

std::string ActorWord(int state) {
  return StateWord(v1::ActorState_Name(static_cast<v1::ActorState>(state)),
                   "ACTOR_STATE_");
}

// "37 % of 2", those that tell.
std::string GpuText(const v1::NodeUsage& usage) {
  double busy = 0;
  int count = 0;
  for (const v1::GpuUsage& gpu : usage.gpus()) {
    if (!gpu.has_busy()) continue;
    busy += gpu.busy();
    ++count;
  }
  return count == 0 ? "" : absl::StrCat(Percent(busy / count), " of ", count);
}

std::string GpuMemoryText(const v1::NodeUsage& usage) {
  double used = 0;
  double total = 0;
  for (const v1::GpuUsage& gpu : usage.gpus()) {
    used += static_cast<double>(gpu.memory_used_bytes());
    total += static_cast<double>(gpu.memory_total_bytes());
  }
  return total <= 0 ? "" : absl::StrCat(Bytes(used), "/", Bytes(total));
}

// With columns of GPUs where a machine tells of them.
std::vector<Row> NodeRows(const TopSample& sample) {
  std::map<std::string, const v1::NodeUsage*> usages;
  for (const v1::NodeUsage& node : sample.usage.nodes()) {
    usages[node.node_id()] = &node;
  }
  std::map<std::string, int> actors;
  for (const v1::ActorInfo& actor : sample.state.actors()) {
    if (actor.state() == v1::ACTOR_STATE_ALIVE) ++actors[actor.node_id()];
  }
  const bool any_gpus = std::any_of(
      sample.usage.nodes().begin(), sample.usage.nodes().end(),
      [](const v1::NodeUsage& node) { return node.gpus_size() > 0; });
  Row heading = {"NODE", "HOST", "STATE", "CPU", "OF", "MEMORY"};
  if (any_gpus) heading.insert(heading.end(), {"GPU", "GPU MEMORY"});
  heading.insert(heading.end(), {"RESERVED", "ACTORS"});
  std::vector<Row> rows = {std::move(heading)};
  for (const v1::NodeInfo& node : sample.state.nodes()) {
    if (node.state() == v1::NODE_STATE_DEAD) continue;
    const auto found = usages.find(node.node_id());
    const v1::NodeUsage* const usage =
        found == usages.end() ? nullptr : found->second;
    const std::string reserved = UsedOfTotal(node, "CPU", &Number);
    Row row = {
        node.node_id(),
        node.hostname(),
        NodeWord(node.state()),
        usage == nullptr ? "" : Percent(usage->cpus_busy() / usage->cpus()),
        usage == nullptr ? "" : absl::StrCat(usage->cpus(), " CPUs"),
        node.memory_total_bytes() <= 0
            ? ""
            : absl::StrCat(
                  Bytes(static_cast<double>(node.memory_used_bytes())), "/",
                  Bytes(static_cast<double>(node.memory_total_bytes())))};
    if (any_gpus) {
      row.push_back(usage == nullptr ? "" : GpuText(*usage));
      row.push_back(usage == nullptr ? "" : GpuMemoryText(*usage));
    }
    row.push_back(reserved.empty() ? "" : absl::StrCat(reserved, " CPUs"));
    row.push_back(absl::StrCat(actors[node.node_id()]));
    rows.push_back(std::move(row));
  }
  return rows;
}

Row ActorRow(const v1::ActorInfo& actor, const UsageByActor& usages,
             const TopSample& sample) {
  const auto usage = usages.find(actor.actor_id());
  const bool measured =
      usage != usages.end() && actor.state() == v1::ACTOR_STATE_ALIVE;
  const auto calls = sample.calls.find(actor.actor_id());
  const bool told = calls != sample.calls.end();
  return {NameOf(actor),
          actor.class_name(),
          ActorWord(actor.state()),
          actor.node_id(),
          actor.pid() == 0 ? "" : absl::StrCat(actor.pid()),
          measured ? CpuText(usage->second->cpus()) : "",
          measured ? MemoryText(usage->second->memory_bytes()) : "",
          told ? RateText(calls->second.per_second) : "",
          told ? absl::StrCat(calls->second.queued) : "",
          absl::StrCat(actor.restarts())};
}

// Rows of a table for `count` things in `room` lines: where there are more, the
// last line says so.
size_t RowsFor(size_t count, size_t room) {
  if (count <= room) return count;
  return room == 0 ? 0 : room - 1;
}

// rows: the heading, and those of `count` things that are shown.
void AddTable(const std::vector<Row>& rows, size_t count, Frame* frame) {
  frame->inverse.insert(frame->lines.size());
  for (std::string& line : SplitLines(FormatColumns(rows))) {
    frame->lines.push_back(std::move(line));
  }
  const size_t missing = count - (rows.size() - 1);
  if (missing > 0) {
    frame->lines.push_back(absl::StrCat("... and ", missing, " more"));
  }
}

}  // namespace

absl::StatusOr<TopOrder> ParseTopOrder(absl::string_view name) {
  for (const TopOrder order :
       {TopOrder::kCpu, TopOrder::kMemory, TopOrder::kName}) {
    if (name == OrderName(order)) return order;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--sort=", OneLine(name), ": expected cpu, memory or name"));
}

TopOrder NextOrder(TopOrder order) {
  switch (order) {
    case TopOrder::kCpu:
      return TopOrder::kMemory;
    case TopOrder::kMemory:
      return TopOrder::kName;
    default:
      return TopOrder::kCpu;
  }
}

std::vector<const v1::ActorInfo*> SortedActors(const TopSample& sample,
                                               TopOrder order) {
  const UsageByActor usages = ByActor(sample);
  // What is smaller comes first.
  using Key = std::tuple<double, std::string, int64_t, std::string>;
  std::vector<std::pair<Key, const v1::ActorInfo*>> sorted;
  for (const v1::ActorInfo& actor : sample.state.actors()) {
    if (actor.state() == v1::ACTOR_STATE_DEAD) continue;
    const auto found = usages.find(actor.actor_id());
    const bool measured = found != usages.end();
    // Behind those that use nothing; as percents, so that what looks alike does
    // not change places all the time.
    const double cpu =
        measured ? std::floor(Sane(found->second->cpus()) * 100) : -1;
    const int64_t memory =
        measured ? std::max<int64_t>(found->second->memory_bytes(), 0) : -1;
    Key key = {0, "", -memory, actor.actor_id()};
    if (order == TopOrder::kCpu) std::get<0>(key) = -cpu;
    if (order == TopOrder::kName) std::get<1>(key) = NameOf(actor);
    sorted.emplace_back(std::move(key), &actor);
  }
  std::sort(sorted.begin(), sorted.end());
  std::vector<const v1::ActorInfo*> actors;
  for (const auto& [key, actor] : sorted) actors.push_back(actor);
  return actors;
}

Frame FormatTop(const TopSample& sample, TopOrder order, int rows) {
  Frame frame;
  frame.inverse = {0};
  frame.lines = {
      absl::StrCat("Head ", sample.head_address, "  ", sample.time,
                   "  sorted by ", OrderName(order),
                   rows == 0 ? "" : "  (s: sort, q: quit)"),
      absl::StrCat("Nodes: ", States(sample.state.nodes(), &NodeWord),
                   "; actors: ", States(sample.state.actors(), &ActorWord)),
      ""};
  const auto all = std::numeric_limits<size_t>::max();
  std::vector<Row> nodes = NodeRows(sample);
  const size_t num_nodes = nodes.size() - 1;
  // A third of the screen.
  const size_t node_room =
      rows == 0 ? all : static_cast<size_t>(std::max(rows / 3, 3));
  nodes.resize(1 + RowsFor(num_nodes, node_room));
  AddTable(nodes, num_nodes, &frame);
  frame.lines.emplace_back();

  const std::vector<const v1::ActorInfo*> actors = SortedActors(sample, order);
  const size_t used = frame.lines.size() + 1;  // With the heading.
  const size_t actor_room =
      rows == 0
          ? all
          : static_cast<size_t>(std::max(rows - static_cast<int>(used), 0));
  const UsageByActor usages = ByActor(sample);
  std::vector<Row> table = {{"ACTOR", "CLASS", "STATE", "NODE", "PID", "CPU",
                             "MEMORY", "CALLS/S", "QUEUE", "RESTARTS"}};
  for (size_t i = 0; i < RowsFor(actors.size(), actor_room); ++i) {
    table.push_back(ActorRow(*actors[i], usages, sample));
  }
  AddTable(table, actors.size(), &frame);
  return frame;
}

}  // namespace miniray::cli
