// What a Mini-Ray program includes. See README.md for a first program.

#ifndef MINIRAY_RUNTIME_API_MINIRAY_H_
#define MINIRAY_RUNTIME_API_MINIRAY_H_

#include "runtime/api/actor_handle.h"
#include "runtime/api/actor_macro.h"
#include "runtime/api/cluster.h"
#include "runtime/api/object_ref.h"
#include "runtime/api/placement_group.h"
#include "runtime/base/plugin_abi.h"

#endif  // MINIRAY_RUNTIME_API_MINIRAY_H_
