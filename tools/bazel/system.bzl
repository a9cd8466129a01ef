"""Repository rules for libraries that the machine already has.

Each checks, when Bazel first needs the library, that it is installed, and says
which package to install when it is not. Nothing is compiled and nothing is
downloaded.
"""

_HINT = "Install it: apt-get install {deb}, or run tools/setup.sh"

_BUILD = """\
load("{rule}", "system_cc_library")

package(default_visibility = ["//visibility:public"])

system_cc_library(
    name = "{name}",
    defines = {defines},
    linkopts = {linkopts},
    system_includes = {system_includes},
    version = "version.txt",
    deps = {deps},
)
"""

def _missing(what, why, deb):
    fail("\n\n%s was not found (%s). %s\n" % (what, why, _HINT.format(deb = deb)))

def _version(rctx, debs):
    """Names the installed packages, so that an upgrade of one rebuilds what uses it."""
    dpkg_query = rctx.which("dpkg-query")
    if not dpkg_query:
        return ""
    show = [dpkg_query, "--show", "--showformat=${Package} ${Version}\n"]
    return rctx.execute(show + debs.split(" ")).stdout

def _write_library(rctx, debs, defines, linkopts, system_includes, deps = []):
    rctx.file("version.txt", _version(rctx, debs), executable = False)
    rctx.file("WORKSPACE", "workspace(name = %r)\n" % rctx.name, executable = False)
    rctx.file(
        "BUILD.bazel",
        _BUILD.format(
            rule = "@miniray//tools/bazel:system_cc.bzl",
            name = rctx.name,
            defines = repr(defines),
            linkopts = repr(linkopts),
            system_includes = repr(system_includes),
            deps = repr([str(dep) for dep in deps]),
        ),
        executable = False,
    )

def _pkg_config(rctx, arguments):
    """Returns the flags as a list without repetitions, or None where a module is missing."""
    program = rctx.which("pkg-config")
    if not program:
        _missing("pkg-config", "it is not on PATH", "pkg-config")
    result = rctx.execute([program] + arguments + rctx.attr.pkg_config)
    if result.return_code != 0:
        return None
    flags = []
    for flag in result.stdout.strip().split(" "):
        if flag and flag not in flags:
            flags.append(flag)
    return flags

def _system_library_impl(rctx):
    cflags = []
    libs = []
    if rctx.attr.pkg_config:
        for module in rctx.attr.pkg_config:
            program = rctx.which("pkg-config")
            if program and rctx.execute([program, "--exists", module]).return_code != 0:
                _missing(rctx.attr.title, "pkg-config module " + module, rctx.attr.deb)
        cflags = _pkg_config(rctx, ["--cflags"])
        libs = _pkg_config(rctx, ["--libs"])

    defines = list(rctx.attr.defines)
    includes = list(rctx.attr.system_includes)
    for flag in cflags:
        if flag.startswith("-D"):
            defines.append(flag[2:])
        elif flag.startswith("-I"):
            includes.append(flag[2:])

    # /usr/include is searched anyway; naming it breaks the C++ library's include_next.
    includes = [path for path in includes if path != "/usr/include"]

    for header in rctx.attr.headers:
        places = [path + "/" + header for path in includes + ["/usr/include"]]
        if not [place for place in places if rctx.path(place).exists]:
            _missing(rctx.attr.title, "header " + header, rctx.attr.deb)
    for program in rctx.attr.programs:
        path = rctx.which(program)
        if not path:
            _missing(rctx.attr.title, "program " + program, rctx.attr.deb)

    # One --as-needed serves the whole line; pkg-config's own push and pop of it lost their
    # meaning when repeated flags were dropped.
    libs = [flag for flag in libs if not flag.startswith("-Wl,")]
    if libs:
        libs = ["-Wl,--as-needed"] + libs
    _write_library(rctx, rctx.attr.deb, defines, libs + rctx.attr.linkopts, includes, rctx.attr.deps)

system_library = repository_rule(
    implementation = _system_library_impl,
    doc = "A library with pkg-config modules, headers in the compiler's own path, or both.",
    attrs = {
        "title": attr.string(mandatory = True, doc = "Its name in messages."),
        "deb": attr.string(mandatory = True, doc = "Debian packages, for the message and the version."),
        "pkg_config": attr.string_list(doc = "Modules that give the flags."),
        "headers": attr.string_list(doc = "Headers that must exist."),
        "programs": attr.string_list(doc = "Programs that must be on PATH."),
        "defines": attr.string_list(doc = "Further macros for whoever uses it."),
        "linkopts": attr.string_list(doc = "Further link options."),
        "system_includes": attr.string_list(doc = "Further absolute -isystem folders."),
        "deps": attr.label_list(doc = "Other system libraries that its headers need."),
    },
    environ = ["PKG_CONFIG_PATH"],
    local = True,
)

def _system_file_impl(rctx):
    if not rctx.path(rctx.attr.path).exists:
        _missing(rctx.attr.title, "file " + rctx.attr.path, rctx.attr.deb)
    name = rctx.attr.path.split("/")[-1]
    rctx.symlink(rctx.attr.path, name)
    rctx.file("WORKSPACE", "workspace(name = %r)\n" % rctx.name, executable = False)
    rctx.file(
        "BUILD.bazel",
        "exports_files([%r], visibility = [\"//visibility:public\"])\n" % name,
        executable = False,
    )

system_file = repository_rule(
    implementation = _system_file_impl,
    doc = "A file that goes into a program as it is; depend on it as @name//:FILE.",
    attrs = {
        "title": attr.string(mandatory = True, doc = "Its name in messages."),
        "deb": attr.string(mandatory = True, doc = "Debian package, for the message."),
        "path": attr.string(mandatory = True, doc = "Where it is."),
    },
    local = True,
)

_DEBIAN_API = "/usr/include/torch/csrc/api/include"

def _libtorch_impl(rctx):
    root = rctx.os.environ.get("MINIRAY_LIBTORCH", "")
    if not root:
        if not rctx.path(_DEBIAN_API + "/torch/torch.h").exists:
            _missing("LibTorch", "header torch/torch.h", "libtorch-dev")
        _write_library(
            rctx,
            "libtorch-dev",
            [],
            ["-Wl,--as-needed", "-ltorch", "-ltorch_cpu", "-lc10"],
            [_DEBIAN_API],
        )
        return

    if not root.startswith("/"):
        fail("\n\nMINIRAY_LIBTORCH=%s must be an absolute path\n" % root)
    for needed in ["include/torch/csrc/api/include/torch/torch.h", "lib/libtorch_cpu.so", "lib/libc10.so"]:
        if not rctx.path(root + "/" + needed).exists:
            fail("\n\nMINIRAY_LIBTORCH=%s has no %s. " % (root, needed) +
                 "It must be the unpacked libtorch folder, with include/ and lib/; " +
                 "unset it to use Debian's libtorch-dev\n")
    config = rctx.path(root + "/share/cmake/Torch/TorchConfig.cmake")
    if config.exists and "-D_GLIBCXX_USE_CXX11_ABI=0" in rctx.read(config):
        fail("\n\nMINIRAY_LIBTORCH=%s was built with the old C++ ABI " % root +
             "(_GLIBCXX_USE_CXX11_ABI=0), which cannot be linked with Debian's libraries. " +
             "Take the build whose name contains cxx11-abi\n")

    # Builds for PyPI export a std::filesystem of an older compiler, which crashes in callers of
    # ours: the C++ library's own comes first.
    linkopts = ["-Wl,--no-as-needed", "-lstdc++", "-L%s/lib" % root, "-Wl,-rpath,%s/lib" % root]
    if rctx.path(root + "/lib/libtorch_cuda.so").exists:
        # Nothing names a symbol of these two; they register themselves when loaded.
        linkopts += ["-Wl,--no-as-needed", "-ltorch", "-ltorch_cuda", "-Wl,--as-needed", "-lc10_cuda"]
    linkopts += ["-Wl,--as-needed", "-ltorch", "-ltorch_cpu", "-lc10"]

    # Bazel lets only the compiler's own folders be named absolutely, so these are linked in.
    # Only LibTorch's own: some builds bring headers of a protobuf of theirs along.
    for folder in ["ATen", "c10", "caffe2", "torch"]:
        rctx.symlink("%s/include/%s" % (root, folder), "include/" + folder)
    version = rctx.path(root + "/build-version")
    rctx.file("version.txt", rctx.read(version) if version.exists else root, executable = False)
    rctx.file("WORKSPACE", "workspace(name = %r)\n" % rctx.name, executable = False)
    rctx.file(
        "BUILD.bazel",
        """\
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "torch",
    hdrs = glob(["include/**"]),
    includes = ["include", "include/torch/csrc/api/include"],
    linkopts = %r,
)
""" % linkopts,
        executable = False,
    )

libtorch = repository_rule(
    implementation = _libtorch_impl,
    doc = "LibTorch: Debian's libtorch-dev, or the folder that MINIRAY_LIBTORCH names.",
    environ = ["MINIRAY_LIBTORCH"],
    local = True,
)
