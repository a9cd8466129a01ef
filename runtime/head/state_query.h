// What GetClusterState is asked for: which tables, and which of their records.

#ifndef MINIRAY_RUNTIME_HEAD_STATE_QUERY_H_
#define MINIRAY_RUNTIME_HEAD_STATE_QUERY_H_

#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "proto/head.pb.h"

namespace miniray {

// True if the request wants this table; without any it wants all but packages.
bool Wants(const v1::GetClusterStateRequest& request, v1::Table table);

// Errors: INVALID_ARGUMENT, a filter names no field of a wanted table, or a
// value that the field cannot have; says which there are.
absl::Status CheckQuery(const v1::GetClusterStateRequest& request);

// True if all filters let it pass. REQUIRES: CheckQuery.
bool Passes(const v1::GetClusterStateRequest& request,
            const v1::ActorInfo& actor);

// Takes out of `state` what the request does not want. Where several tables are
// wanted, a filter concerns those that have its field. REQUIRES: CheckQuery.
void ApplyQuery(const v1::GetClusterStateRequest& request,
                v1::GetClusterStateResponse* state);

// --- The same filters for records that are in none of these tables.

// Errors: INVALID_ARGUMENT, as of CheckQuery.
absl::Status CheckFilters(const google::protobuf::Descriptor& record,
                          const std::vector<v1::Filter>& filters);

// REQUIRES: CheckFilters.
bool PassesFilters(const std::vector<v1::Filter>& filters,
                   const google::protobuf::Message& record);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_HEAD_STATE_QUERY_H_
