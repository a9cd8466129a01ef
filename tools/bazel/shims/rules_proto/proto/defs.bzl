"""The part of rules_proto that Bazel 4's own BUILD files load: its native rules."""

proto_library = native.proto_library
proto_lang_toolchain = native.proto_lang_toolchain
