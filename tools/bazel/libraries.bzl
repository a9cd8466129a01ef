"""The system libraries Mini-Ray is built on, one repository each."""

load("//tools/bazel:system.bzl", "libtorch", "system_file", "system_library")

# Abseil's libraries are small, shared and many. All that we use are offered as
# one; --as-needed drops the rest from the link.
_ABSL_MODULES = [
    "absl_" + module
    for module in [
        "any_invocable",
        "base",
        "bind_front",
        "btree",
        "cleanup",
        "cord",
        "core_headers",
        "examine_stack",
        "failure_signal_handler",
        "fixed_array",
        "flags",
        "flags_marshalling",
        "flags_parse",
        "flags_reflection",
        "flags_usage",
        "flat_hash_map",
        "flat_hash_set",
        "function_ref",
        "hash",
        "inlined_vector",
        "int128",
        "leak_check",
        "memory",
        "node_hash_map",
        "node_hash_set",
        "numeric",
        "optional",
        "random_bit_gen_ref",
        "random_random",
        "span",
        "stacktrace",
        "status",
        "statusor",
        "str_format",
        "strings",
        "symbolize",
        "synchronization",
        "time",
        "type_traits",
        "utility",
        "variant",
    ]
]

def system_libraries():
    """Defines @absl, @grpc, @torch and the other external labels."""
    system_library(
        name = "absl",
        deb = "libabsl-dev",
        headers = ["absl/status/statusor.h"],
        pkg_config = _ABSL_MODULES,
        title = "Abseil",
    )
    system_library(
        name = "protobuf",
        deb = "libprotobuf-dev protobuf-compiler",
        headers = ["google/protobuf/message.h"],
        pkg_config = ["protobuf"],
        programs = ["protoc"],
        title = "Protocol Buffers",
    )
    system_library(
        name = "grpc",
        deb = "libgrpc++-dev protobuf-compiler-grpc",
        headers = ["grpcpp/grpcpp.h"],
        pkg_config = ["grpc++"],
        programs = ["grpc_cpp_plugin"],
        deps = ["@protobuf"],
        title = "gRPC",
    )
    system_library(
        name = "glog",
        deb = "libgoogle-glog-dev",
        headers = ["glog/logging.h"],
        pkg_config = ["libglog"],
        title = "glog",
    )
    system_library(
        name = "gtest",
        deb = "libgtest-dev libgmock-dev",
        headers = [
            "gmock/gmock.h",
            "gtest/gtest.h",
        ],
        pkg_config = [
            "gmock_main",
            "gmock",
            "gtest",
        ],
        title = "GoogleTest",
    )
    system_library(
        name = "benchmark",
        deb = "libbenchmark-dev",
        headers = ["benchmark/benchmark.h"],
        pkg_config = ["benchmark"],
        title = "Google Benchmark",
    )
    system_library(
        name = "png",
        deb = "libpng-dev",
        headers = ["png.h"],
        pkg_config = ["libpng"],
        title = "libpng",
    )
    system_library(
        name = "turbojpeg",
        deb = "libturbojpeg0-dev",
        headers = ["turbojpeg.h"],
        pkg_config = ["libturbojpeg"],
        title = "libjpeg-turbo's TurboJPEG",
    )
    system_library(
        name = "zlib",
        deb = "zlib1g-dev",
        headers = ["zlib.h"],
        pkg_config = ["zlib"],
        title = "zlib",
    )
    system_library(
        name = "openssl",
        deb = "libssl-dev",
        headers = ["openssl/evp.h"],
        pkg_config = ["libcrypto"],
        title = "OpenSSL's libcrypto",
    )
    system_library(
        name = "libssl",
        deb = "libssl-dev",
        headers = ["openssl/ssl.h"],
        pkg_config = ["libssl"],
        title = "OpenSSL's libssl",
    )
    system_library(
        name = "jemalloc",
        deb = "libjemalloc-dev",
        headers = ["jemalloc/jemalloc.h"],
        pkg_config = ["jemalloc"],
        title = "jemalloc",
    )
    system_library(
        name = "sqlite3",
        deb = "libsqlite3-dev",
        headers = ["sqlite3.h"],
        pkg_config = ["sqlite3"],
        title = "SQLite",
    )
    system_library(
        name = "httplib",
        deb = "libcpp-httplib-dev",
        headers = ["httplib.h"],
        pkg_config = ["cpp-httplib"],
        title = "cpp-httplib",
    )
    system_library(
        name = "json",
        deb = "nlohmann-json3-dev",
        headers = ["nlohmann/json.hpp"],
        pkg_config = ["nlohmann_json"],
        title = "nlohmann-json",
    )
    system_file(
        name = "chart_js",
        deb = "libjs-chart.js",
        path = "/usr/share/javascript/chart.js/chart.min.js",
        title = "Chart.js",
    )

    system_library(
        name = "prometheus",
        deb = "prometheus-cpp-dev",
        headers = ["prometheus/text_serializer.h"],
        pkg_config = ["prometheus-cpp-core"],
        title = "prometheus-cpp's core",
    )
    # Headers alone: LibTorch's library brings its own use of it.
    system_library(
        name = "gloo",
        deb = "libgloo-dev",
        headers = ["gloo/context.h"],
        title = "Gloo",
    )
    libtorch(name = "torch")
