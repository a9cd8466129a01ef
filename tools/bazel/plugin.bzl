"""What a plug-in compiles against."""

def _headers_of_impl(ctx):
    infos = [dep[CcInfo] for dep in ctx.attr.deps]
    merged = cc_common.merge_cc_infos(cc_infos = infos)

    # System libraries consist of link flags only and are shared: they stay, because the
    # program may have dropped one that it does not use itself.
    kept = [
        cc_common.create_linker_input(
            owner = linker_input.owner,
            user_link_flags = depset(linker_input.user_link_flags),
        )
        for linker_input in merged.linking_context.linker_inputs.to_list()
        if not linker_input.libraries
    ]
    return [CcInfo(
        compilation_context = merged.compilation_context,
        linking_context = cc_common.create_linking_context(linker_inputs = depset(kept)),
    )]

headers_of = rule(
    implementation = _headers_of_impl,
    doc = "The headers of libraries of ours without their code.",
    attrs = {"deps": attr.label_list(providers = [CcInfo])},
    provides = [CcInfo],
)
