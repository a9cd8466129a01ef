"""The rules that Mini-Ray's BUILD files use: the native ones with our options."""

load("//tools/bazel:plugin.bzl", "headers_of")
load("//tools/bazel:proto.bzl", "mr_proto_gen")

_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-sign-compare",
    # g++ 12 also counts the fields that a designated initialiser leaves at their default.
    "-Wno-missing-field-initializers",
    # These guess at the flow of inlined library code, and guess wrong: show, do not stop.
    "-Wno-error=array-bounds",
    "-Wno-maybe-uninitialized",
    "-Wno-error=stringop-overflow",
    "-Wno-error=stringop-overread",
    "-Wno-error=restrict",
]

_OUR_FOLDERS = ["proto", "runtime", "ps", "train", "ml", "tools", "tests"]

def _copts(copts):
    """Our options; warnings are errors in this project's own packages, not in its users'."""
    ours = native.repository_name() == "@" and native.package_name().split("/")[0] in _OUR_FOLDERS
    return _COPTS + (["-Werror"] if ours else []) + copts

# Plug-ins find our symbols in the executable that loads them.
_EXPORT_SYMBOLS = ["-rdynamic"]

# In every plug-in: what programs look for before they load it.
_PLUGIN_SRCS = [Label("//tools/bazel:plugin_libtorch.cc")]

# In every program, so that sanitizers find what they need there.
# A Label is one of this workspace wherever the macro is used.
_PROGRAM_DEPS = [Label("//tools/bazel:program_support")]

def mr_cc_library(name, copts = [], alwayslink = True, **kwargs):
    """A cc_library.

    Programs contain it whole (alwayslink) even where they use little of it:
    plug-ins may use the rest, and no registration in a static initialiser gets
    lost. It is built only as position-independent static library.

    Args:
      name: its name.
      copts: further compiler options.
      alwayslink: False for code that is dead weight where it is not called.
      **kwargs: all else that cc_library takes.
    """
    native.cc_library(
        name = name,
        copts = _copts(copts),
        alwayslink = alwayslink,
        linkstatic = True,
        **kwargs
    )

def mr_cc_binary(name, copts = [], linkopts = [], deps = [], **kwargs):
    """A cc_binary with our libraries linked statically and its symbols exported."""
    native.cc_binary(
        name = name,
        copts = _copts(copts),
        linkopts = _EXPORT_SYMBOLS + linkopts,
        linkstatic = True,
        deps = deps + _PROGRAM_DEPS,
        **kwargs
    )

def mr_cc_test(name, copts = [], linkopts = [], deps = [], size = "small", **kwargs):
    """A cc_test with GoogleTest, GoogleMock and their main; linked like mr_cc_binary.

    A test that brings a main of its own may: GoogleMock's is then not used.
    """
    native.cc_test(
        name = name,
        size = size,
        copts = _copts(copts),
        linkopts = _EXPORT_SYMBOLS + linkopts,
        linkstatic = True,
        deps = deps + [d for d in ["@gtest"] if d not in deps] + _PROGRAM_DEPS,
        **kwargs
    )

def mr_cc_plugin(name, srcs, deps = [], copts = [], testonly = False, **kwargs):
    """A shared object lib<name>.so for --plugin.

    It is compiled against the headers of deps but contains none of our
    libraries: its symbols resolve against the program that loads it, so that
    there is one copy of each registry.
    """
    headers_of(
        name = name + "_headers",
        testonly = testonly,
        visibility = ["//visibility:private"],
        deps = deps,
    )
    native.cc_binary(
        name = "lib%s.so" % name,
        srcs = srcs + _PLUGIN_SRCS,
        copts = _copts(copts),
        linkshared = True,
        testonly = testonly,
        deps = [":%s_headers" % name],
        **kwargs
    )

    # So that `bazel build //my:name` builds it.
    native.alias(
        name = name,
        actual = ":lib%s.so" % name,
        testonly = testonly,
        visibility = kwargs.get("visibility"),
    )

def _generated(label):
    """The label of the rule behind an mr_proto_library's label."""
    if ":" in label:
        return label + "_gen"
    return "%s:%s_gen" % (label, label.split("/")[-1])

def mr_proto_library(name, srcs, deps = [], grpc = False, visibility = None, testonly = False):
    """Messages, and with grpc services, as C++: #include "<folder>/<file>.pb.h".

    Args:
      name: the library; depend on it as on any mr_cc_library.
      srcs: .proto files of this package. Imports are written from the root.
      deps: the mr_proto_library targets whose files they import.
      grpc: also make <file>.grpc.pb.h.
      visibility: as everywhere.
      testonly: as everywhere.
    """
    outs = []
    for src in srcs:
        if not src.endswith(".proto"):
            fail("mr_proto_library %s: %s is not a .proto file" % (name, src))
        stem = src[:-len(".proto")]
        outs += [stem + ".pb.h", stem + ".pb.cc"]
        if grpc:
            outs += [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"]
    mr_proto_gen(
        name = name + "_gen",
        srcs = srcs,
        outs = outs,
        grpc = grpc,
        testonly = testonly,
        visibility = visibility,
        deps = [_generated(dep) for dep in deps],
    )
    native.cc_library(
        name = name,
        srcs = [out for out in outs if out.endswith(".cc")],
        hdrs = [out for out in outs if out.endswith(".h")],
        # Not ours to correct.
        copts = ["-w"],
        alwayslink = True,
        linkstatic = True,
        testonly = testonly,
        visibility = visibility,
        deps = deps + (["@grpc"] if grpc else []) + ["@protobuf"],
    )
