// The part of Api about nodes, actors and jobs.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/status_macros.h"
#include "runtime/dashboard/answers.h"
#include "runtime/dashboard/api.h"
#include "runtime/dashboard/state_json.h"

namespace miniray {
namespace {

using google::protobuf::EnumDescriptor;

constexpr int64_t kUsualLimit = 100;
constexpr int64_t kMaxLimit = 1000;
constexpr int64_t kMaxOffset = 1'000'000'000;

struct Page {
  int64_t offset;
  int64_t limit;

  // Which of `total` records, the first and the one behind the last.
  size_t begin(size_t total) const {
    return std::min<size_t>(static_cast<size_t>(offset), total);
  }
  size_t end(size_t total) const {
    return std::min<size_t>(static_cast<size_t>(offset + limit), total);
  }
};

absl::StatusOr<Page> PageOf(const httplib::Request& request) {
  MR_ASSIGN_OR_RETURN(const int64_t offset,
                      IntParam(request, "offset", 0, kMaxOffset, 0));
  MR_ASSIGN_OR_RETURN(const int64_t limit,
                      IntParam(request, "limit", 0, kMaxLimit, kUsualLimit));
  return Page{offset, limit};
}

// The value called `text`, in any case and without the prefix of its type.
// more: what else may stand there, for the error.
absl::StatusOr<int> EnumValue(const std::string& text,
                              const EnumDescriptor* type,
                              absl::string_view prefix,
                              std::vector<std::string> more = {}) {
  for (int i = 0; i < type->value_count(); ++i) {
    if (type->value(i)->number() == 0) continue;
    const absl::string_view name =
        absl::StripPrefix(type->value(i)->name(), prefix);
    if (absl::EqualsIgnoreCase(name, text)) return type->value(i)->number();
    more.push_back(absl::AsciiStrToLower(name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("state='", absl::CHexEscape(text), "': expected one of ",
                   absl::StrJoin(more, ", ")));
}

// {"total":3,"offset":0,"limit":100,"NAME":[...]}; extra: further members, each
// with a comma behind it.
template <class Record>
absl::StatusOr<std::string> PageJson(
    size_t total, const Page& page, absl::string_view extra,
    absl::string_view name, const std::vector<const Record*>& records) {
  std::string json =
      absl::StrCat("{\"total\":", total, ",\"offset\":", page.offset,
                   ",\"limit\":", page.limit, ",", extra, "\"", name, "\":[");
  absl::string_view comma = "";
  for (const Record* record : records) {
    MR_ASSIGN_OR_RETURN(const std::string text,
                        MessageToJson(*record, JsonStyle::kCompact));
    absl::StrAppend(&json, comma, text);
    comma = ",";
  }
  json += "]}";
  return json;
}

// "usage":[...], of those that `is_shown` names, with the comma.
template <class Usages, class IsShown>
absl::StatusOr<std::string> UsageJson(const Usages& usages,
                                      const IsShown& is_shown) {
  std::string json = "\"usage\":[";
  absl::string_view comma = "";
  for (const auto& usage : usages) {
    if (!is_shown(usage)) continue;
    MR_ASSIGN_OR_RETURN(const std::string text,
                        MessageToJson(usage, JsonStyle::kCompact));
    absl::StrAppend(&json, comma, text);
    comma = ",";
  }
  json += "],";
  return json;
}

template <class Record>
absl::StatusOr<std::string> OneJson(absl::string_view name,
                                    const Record& record) {
  MR_ASSIGN_OR_RETURN(const std::string text,
                      MessageToJson(record, JsonStyle::kCompact));
  return absl::StrCat("{\"", name, "\":", text, "}");
}

template <class Record>
std::vector<const Record*> PageOfSorted(
    const std::vector<const Record*>& sorted, const Page& page) {
  return {sorted.begin() + static_cast<ptrdiff_t>(page.begin(sorted.size())),
          sorted.begin() + static_cast<ptrdiff_t>(page.end(sorted.size()))};
}

// What a request wants of the actors; empty fields: all.
struct ActorFilter {
  bool living = false;
  std::optional<int> state;
  std::string class_name, job, node;  // The class: a part of its name.

  bool Passes(const v1::ActorInfo& actor) const {
    return (!living || actor.state() != v1::ACTOR_STATE_DEAD) &&
           (!state.has_value() || actor.state() == *state) &&
           absl::StrContains(actor.class_name(), class_name) &&
           (job.empty() || actor.job_id() == job) &&
           (node.empty() || actor.node_id() == node);
  }
};

absl::StatusOr<ActorFilter> ActorFilterOf(const httplib::Request& request) {
  ActorFilter filter;
  filter.class_name = request.get_param_value("class");
  filter.job = request.get_param_value("job");
  filter.node = request.get_param_value("node");
  const std::string state = request.get_param_value("state");
  if (absl::EqualsIgnoreCase(state, "living")) {
    filter.living = true;
  } else if (!state.empty()) {
    MR_ASSIGN_OR_RETURN(filter.state,
                        EnumValue(state, v1::ActorState_descriptor(),
                                  "ACTOR_STATE_", {"living"}));
  }
  return filter;
}

// Where an actor stands in the list: the newest first.
struct ActorPlace {
  int64_t create_unix_ms;
  std::string id;
  bool operator<(const ActorPlace& other) const {
    return std::tie(other.create_unix_ms, id) <
           std::tie(create_unix_ms, other.id);
  }
};

int64_t BirthOf(const v1::JobInfo& job) {
  return job.start_unix_ms() != 0 ? job.start_unix_ms() : job.submit_unix_ms();
}

// The page of ten thousand actors costs a look at each, and copies of those
// that are on it.
absl::StatusOr<std::string> ActorsJson(
    const ActorFilter& filter, const Page& page,
    const std::function<v1::GetClusterStateResponse(
        const std::function<bool(const v1::ActorInfo&)>&)>& select,
    const std::function<v1::GetUsageResponse(const std::vector<std::string>&)>&
        usage_of) {
  std::map<int, int64_t> by_state;
  std::vector<ActorPlace> places;
  select([&](const v1::ActorInfo& actor) {
    ++by_state[actor.state()];
    if (filter.Passes(actor)) {
      places.push_back({actor.create_unix_ms(), actor.actor_id()});
    }
    return false;
  });
  const auto begin =
      places.begin() + static_cast<ptrdiff_t>(page.begin(places.size()));
  const auto end =
      places.begin() + static_cast<ptrdiff_t>(page.end(places.size()));
  std::partial_sort(places.begin(), end, places.end());
  std::unordered_map<std::string, size_t> wanted;
  for (auto place = begin; place != end; ++place) {
    wanted.emplace(place->id, wanted.size());
  }
  v1::GetClusterStateResponse found;
  if (!wanted.empty()) {
    found = select([&](const v1::ActorInfo& actor) {
      return wanted.contains(actor.actor_id());
    });
  }
  std::vector<const v1::ActorInfo*> actors;
  for (const v1::ActorInfo& actor : found.actors()) actors.push_back(&actor);
  std::sort(actors.begin(), actors.end(),
            [&](const v1::ActorInfo* a, const v1::ActorInfo* b) {
              return wanted[a->actor_id()] < wanted[b->actor_id()];
            });
  nlohmann::json counts = nlohmann::json::object();
  for (const auto& [state, count] : by_state) {
    counts[v1::ActorState_Name(static_cast<v1::ActorState>(state))] = count;
  }
  std::vector<std::string> ids;
  for (const v1::ActorInfo* actor : actors) ids.push_back(actor->actor_id());
  const v1::GetUsageResponse used =
      ids.empty() ? v1::GetUsageResponse() : usage_of(ids);
  MR_ASSIGN_OR_RETURN(
      const std::string usage,
      UsageJson(used.actors(), [](const auto&) { return true; }));
  return PageJson(places.size(), page,
                  absl::StrCat("\"by_state\":", counts.dump(), ",", usage),
                  "actors", actors);
}

// The page of nodes, which are sorted, and what those on it use.
absl::StatusOr<std::string> NodesJson(
    const std::vector<const v1::NodeInfo*>& nodes, const Page& page,
    const v1::GetUsageResponse& usage) {
  const std::vector<const v1::NodeInfo*> shown = PageOfSorted(nodes, page);
  std::set<std::string> ids;
  for (const v1::NodeInfo* node : shown) ids.insert(node->node_id());
  MR_ASSIGN_OR_RETURN(
      const std::string used,
      UsageJson(usage.nodes(), [&ids](const v1::NodeUsage& node) {
        return ids.contains(node.node_id());
      }));
  return PageJson(nodes.size(), page, used, "nodes", shown);
}

// {"actor":{...},"usage":{...}}, without usage where nobody knows it.
absl::StatusOr<std::string> ActorJson(const v1::ActorInfo& actor,
                                      const v1::GetUsageResponse& usage) {
  if (usage.actors().empty()) return OneJson("actor", actor);
  MR_ASSIGN_OR_RETURN(const std::string told,
                      MessageToJson(actor, JsonStyle::kCompact));
  MR_ASSIGN_OR_RETURN(const std::string used,
                      MessageToJson(usage.actors(0), JsonStyle::kCompact));
  return absl::StrCat("{\"actor\":", told, ",\"usage\":", used, "}");
}

}  // namespace

void Api::AddClusterTo(Routes* routes) {
  routes->Add("GET", "/api/v1/state", Access::kData,
              [this](const Request& request, const Args&, Response& response) {
                State(request, response);
              });
  routes->Add("GET", "/api/v1/nodes", Access::kData,
              [this](const Request& request, const Args&, Response& response) {
                Nodes(request, response);
              });
  routes->Add("GET", "/api/v1/actors", Access::kData,
              [this](const Request& request, const Args&, Response& response) {
                Actors(request, response);
              });
  routes->Add("GET", "/api/v1/actors/{}", Access::kData,
              [this](const Request&, const Args& args, Response& response) {
                Actor(args[0], response);
              });
  routes->Add("GET", "/api/v1/actors/{}/calls", Access::kData,
              [this](const Request&, const Args& args, Response& response) {
                ActorCalls(args[0], response);
              });
  routes->Add("GET", "/api/v1/jobs", Access::kData,
              [this](const Request& request, const Args&, Response& response) {
                Jobs(request, response);
              });
  routes->Add("GET", "/api/v1/jobs/{}", Access::kData,
              [this](const Request&, const Args& args, Response& response) {
                Job(args[0], response);
              });
  routes->Add("POST", "/api/v1/jobs/{}/stop", Access::kWrite,
              [this](const Request&, const Args& args, Response& response) {
                StopJob(args[0], response);
              });
}

void Api::State(const Request&, Response& response) const {
  Answer(response, ClusterStateToJson(options_.state(), JsonStyle::kCompact));
}

void Api::Nodes(const Request& request, Response& response) const {
  const absl::StatusOr<Page> page = PageOf(request);
  if (!page.ok()) return Refuse(response, page.status());
  const v1::GetClusterStateResponse state = Select({v1::TABLE_NODES}, nullptr);
  std::vector<const v1::NodeInfo*> nodes;
  for (const v1::NodeInfo& node : state.nodes()) nodes.push_back(&node);
  std::sort(nodes.begin(), nodes.end(),
            [](const v1::NodeInfo* a, const v1::NodeInfo* b) {
              const auto place = [](const v1::NodeInfo& node) {
                return std::make_tuple(node.state() == v1::NODE_STATE_DEAD,
                                       node.start_unix_ms(), node.node_id());
              };
              return place(*a) < place(*b);
            });
  Answer(response, NodesJson(nodes, *page, Usage({})));
}

void Api::Actors(const Request& request, Response& response) const {
  const absl::StatusOr<Page> page = PageOf(request);
  if (!page.ok()) return Refuse(response, page.status());
  const absl::StatusOr<ActorFilter> filter = ActorFilterOf(request);
  if (!filter.ok()) return Refuse(response, filter.status());
  Answer(
      response,
      ActorsJson(
          *filter, *page,
          [this](const auto& keep) { return Select({v1::TABLE_ACTORS}, keep); },
          [this](const std::vector<std::string>& ids) { return Usage(ids); }));
}

void Api::Actor(const std::string& id, Response& response) const {
  const v1::GetClusterStateResponse state = Select(
      {v1::TABLE_ACTORS},
      [&id](const v1::ActorInfo& actor) { return actor.actor_id() == id; });
  if (state.actors().empty()) {
    return Refuse(response, 404, absl::StrCat("the head knows no actor ", id));
  }
  Answer(response, ActorJson(state.actors(0), Usage({id})));
}

void Api::ActorCalls(const std::string& id, Response& response) const {
  if (!options_.inspect_actor) {
    return Refuse(response, 404, "this head asks actors nothing");
  }
  const absl::StatusOr<v1::InspectResponse> told = options_.inspect_actor(id);
  if (!told.ok()) return Refuse(response, told.status());
  Answer(response, OneJson("calls", *told));
}

void Api::Jobs(const Request& request, Response& response) const {
  const absl::StatusOr<Page> page = PageOf(request);
  if (!page.ok()) return Refuse(response, page.status());
  std::optional<int> wanted;
  if (const std::string state = request.get_param_value("state");
      !state.empty()) {
    const absl::StatusOr<int> value =
        EnumValue(state, v1::JobState_descriptor(), "JOB_STATE_");
    if (!value.ok()) return Refuse(response, value.status());
    wanted = *value;
  }
  const v1::GetClusterStateResponse state = Select({v1::TABLE_JOBS}, nullptr);
  std::vector<const v1::JobInfo*> jobs;
  for (const v1::JobInfo& job : state.jobs()) {
    if (!wanted.has_value() || job.state() == *wanted) jobs.push_back(&job);
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const v1::JobInfo* a, const v1::JobInfo* b) {
              return std::make_tuple(BirthOf(*b), a->job_id()) <
                     std::make_tuple(BirthOf(*a), b->job_id());
            });
  Answer(response,
         PageJson(jobs.size(), *page, "", "jobs", PageOfSorted(jobs, *page)));
}

void Api::Job(const std::string& id, Response& response) const {
  const v1::GetClusterStateResponse state = Select({v1::TABLE_JOBS}, nullptr);
  for (const v1::JobInfo& job : state.jobs()) {
    if (job.job_id() == id) return Answer(response, OneJson("job", job));
  }
  Refuse(response, 404, absl::StrCat("the head knows no job ", id));
}

void Api::StopJob(const std::string& id, Response& response) const {
  if (!options_.stop_job) {
    return Refuse(response, 404, "this head stops no jobs");
  }
  v1::StopJobRequest request;
  request.set_job_id(id);
  const absl::StatusOr<v1::StopJobResponse> stopped =
      options_.stop_job(request);
  if (!stopped.ok()) return Refuse(response, stopped.status());
  Answer(response, MessageToJson(*stopped, JsonStyle::kCompact));
}

}  // namespace miniray
