"""What a WORKSPACE that builds with Mini-Ray needs, ours included. Nothing downloads."""

load("//tools/bazel:libraries.bzl", "system_libraries")

# Bazel 4 fetches these four unless the workspace defines them.
_SHIMS = [
    "remote_coverage_tools",
    "rules_cc",
    "rules_java",
    "rules_proto",
]

def miniray_workspace(path = "."):
    """Defines the system libraries (@absl, @grpc, @torch, …) and Bazel's own needs.

    Args:
      path: of the Mini-Ray checkout, as in the local_repository that names it.
    """
    for name in _SHIMS:
        native.local_repository(
            name = name,
            path = path + "/tools/bazel/shims/" + name,
        )
    system_libraries()
