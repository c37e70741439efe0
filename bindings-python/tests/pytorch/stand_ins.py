"""Empty libraries in place of NVIDIA's, so that PyTorch's wheel can be imported on a machine without them.

    python stand_ins.py CC [DIRECTORY OF TORCH]

The compiler `CC` makes each missing library that PyTorch's own libraries are linked with, beside them, with the soname,
the versions and the symbols that they name. Its functions return an error ("no device") and report that there are no
devices, so PyTorch finds no GPU and works on the CPU.
"""

import collections
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

#: cudaErrorNoDevice; libraries other than the CUDA runtime take it for some failure.
NO_DEVICE = 100
#: Functions that PyTorch calls for two numbers before its GPU allocator, which works without a GPU (test_allocator.py).
NUMBERS = ("cudaGetDevice", "cudaGetDeviceCount")


def read(tool_option, library):
    command = ["readelf", "-W", *tool_option.split(), str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", read("-d", library))


def versions(library):
    """Pairs of a library and a version that is required of it."""
    pairs, file = [], None
    for kind, name in re.findall(r"(File|Name): (\S+)", read("-V", library)):
        if kind == "File":
            file = name
        elif file:
            pairs.append((file, name))
    return pairs


def symbols(library):
    """The symbols that a library needs and those that it has: sets of `name` or `name@version`."""
    wanted, there = set(), set()
    for line in read("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[4] not in ("GLOBAL", "WEAK", "UNIQUE"):
            continue
        if fields[6] != "UND":
            there.add(fields[7].partition("@")[0])
        elif fields[4] != "WEAK":
            wanted.add((fields[7].partition("@")[0], fields[7].partition("@")[2].strip("@"), fields[3]))
    return wanted, there


def is_system(name):
    """Whether every machine has the library; or it is the CUDA driver, which is missing or real, and is loaded late."""
    return re.match(r"(ld-linux|lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s|quadmath|z|cuda)\.so)", name) is not None


def source(wanted):
    lines = []
    for name, kind in sorted(wanted):
        if kind == "OBJECT":
            lines.append(f"char {name}[256];")
        elif name in NUMBERS:
            lines.append(f"int {name}(int *number) {{ *number = 0; return 0; }}")
        elif re.search(r"String|ErrorName", name):
            lines.append(f'const char *{name}(void) {{ return "no device"; }}')
        else:
            lines.append(f"int {name}(void) {{ return {NO_DEVICE}; }}")
    return "\n".join(lines) + "\n"


def make(compiler, path, by_version):
    """Makes a library with these symbols: version -> {(name, kind)}; the version "" means none."""
    names = set().union(*by_version.values())
    script = path.with_suffix(".map")
    nodes = [(version, found) for version, found in sorted(by_version.items()) if version]
    script.write_text(
        "\n".join(
            f"{version} {{ {'global: ' + '; '.join(sorted(name for name, _ in found)) + ';' if found else ''} }};"
            for version, found in nodes
        )
    )
    command = [compiler, "-x", "c", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,-soname,{path.name}"]
    if nodes:
        command.append(f"-Wl,--version-script={script}")
    subprocess.run([*command, "-o", path, "-"], input=source(names), text=True, check=True)
    script.unlink()


def main(compiler, torch):
    libraries = sorted((torch / "lib").glob("*.so*"))
    own = {library.name for library in libraries}
    missing = {name for library in libraries for name in needed(library) if name not in own and not is_system(name)}
    by_library = {name: collections.defaultdict(set) for name in missing}
    wanted, there = set(), set()
    for library in libraries:
        for name, version in versions(library):
            if name in missing:
                by_library[name][version] |= set()
        more_wanted, more_there = symbols(library)
        wanted, there = wanted | more_wanted, there | more_there
    library_of = {version: name for name, found in by_library.items() for version in found}
    plain = [name for name in missing if not by_library[name]]
    for name, version, kind in wanted:
        if version in library_of:
            by_library[library_of[version]][version].add((name, kind))
        elif not version and name not in there and re.match(r"_*(cu|nccl|nv)", name):
            for library in plain:
                by_library[library][""].add((name, kind))
    for name, by_version in sorted(by_library.items()):
        make(compiler, torch / "lib" / name, by_version)
        print(f"{name}: {sum(map(len, by_version.values()))} symbols")


if __name__ == "__main__":
    site = Path(sysconfig.get_paths()["purelib"])
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else site / "torch")
