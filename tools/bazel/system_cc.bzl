"""The build rule behind the targets that system.bzl generates."""

def _system_cc_library_impl(ctx):
    compilation = cc_common.create_compilation_context(
        defines = depset(ctx.attr.defines),
        # Never included; an input so that another version of the library means a rebuild.
        headers = depset([ctx.file.version]),
        system_includes = depset(ctx.attr.system_includes),
    )
    linker_input = cc_common.create_linker_input(
        owner = ctx.label,
        user_link_flags = depset(ctx.attr.linkopts),
    )
    own = CcInfo(
        compilation_context = compilation,
        linking_context = cc_common.create_linking_context(
            linker_inputs = depset([linker_input]),
        ),
    )
    return [
        cc_common.merge_cc_infos(
            direct_cc_infos = [own],
            cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
        ),
    ]

system_cc_library = rule(
    implementation = _system_cc_library_impl,
    doc = "A library outside the workspace: compile and link flags, no files of ours.",
    attrs = {
        "defines": attr.string_list(),
        "linkopts": attr.string_list(),
        "system_includes": attr.string_list(),
        "version": attr.label(allow_single_file = True, mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
    },
    provides = [CcInfo],
)
