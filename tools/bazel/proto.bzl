"""Runs the system's protoc, with gRPC's plug-in where services are wanted."""

ProtoFilesInfo = provider(
    doc = "The .proto files that an import may need.",
    fields = {"files": "depset of File, transitive"},
)

def _mr_proto_gen_impl(ctx):
    files = depset(
        ctx.files.srcs,
        transitive = [dep[ProtoFilesInfo].files for dep in ctx.attr.deps],
    )

    # Not the top where another workspace uses this one.
    root = ctx.label.workspace_root
    out = "/".join([part for part in [ctx.bin_dir.path, root] if part])
    arguments = ctx.actions.args()
    arguments.add("--proto_path=" + (root or "."))
    arguments.add("--cpp_out=" + out)
    if ctx.attr.grpc:
        arguments.add("--plugin=protoc-gen-grpc=" + ctx.attr.grpc_plugin)
        arguments.add("--grpc_out=" + out)
    arguments.add_all(ctx.files.srcs)
    ctx.actions.run(
        executable = ctx.attr.protoc,
        arguments = [arguments],
        inputs = files,
        outputs = ctx.outputs.outs,
        mnemonic = "Protoc",
        progress_message = "Generating C++ from %s" % ctx.label,
    )
    return [
        DefaultInfo(files = depset(ctx.outputs.outs)),
        ProtoFilesInfo(files = files),
    ]

mr_proto_gen = rule(
    implementation = _mr_proto_gen_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".proto"], mandatory = True),
        "outs": attr.output_list(mandatory = True),
        "deps": attr.label_list(providers = [ProtoFilesInfo]),
        "grpc": attr.bool(),
        "protoc": attr.string(default = "/usr/bin/protoc"),
        "grpc_plugin": attr.string(default = "/usr/bin/grpc_cpp_plugin"),
    },
)
