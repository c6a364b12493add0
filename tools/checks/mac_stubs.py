#!/usr/bin/env python3
"""Makes what a build for macOS needs on a machine that is none: a compiler, and stubs of the libraries.

    tools/checks/mac_stubs.py ZIG OUT

OUT/bin gets cc, ar and ranlib by `zig` (of PyPI's ziglang), whose target the variable SKV_MAC_TARGET names. OUT/include
gets the headers of the libraries on this machine, OUT/lib a text stub (.tbd) of each, which exports every identifier of
its headers, and OUT/pkgconfig a .pc file. A program links against them as against the libraries, and runs nowhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

# A module of pkg-config, its library, and its headers below its include folder.
LIBRARIES = [
    ("jansson", "jansson", ["jansson.h", "jansson_config.h"]),
    ("libpcre2-8", "pcre2-8", ["pcre2.h"]),
    ("libutf8proc", "utf8proc", ["utf8proc.h"]),
    ("nettle", "nettle", ["nettle"]),
    ("yaml-0.1", "yaml", ["yaml.h"]),
    ("libcurl", "curl", ["curl"]),
    ("openssl", "ssl", ["openssl"]),
    ("cmocka", "cmocka", ["cmocka.h", "cmocka_pbc.h"]),
]
SYSTEM_FOLDERS = [Path("/usr/include"), *sorted(Path("/usr/include").glob("*-linux-gnu"))]


def copy_headers(names, out):
    """The text of the headers, which are copied; those of the machine's architecture over the common ones."""
    text = []
    for folder in SYSTEM_FOLDERS:
        for name in names:
            source = folder / name
            files = sorted(source.rglob("*.h")) if source.is_dir() else [source] if source.is_file() else []
            for path in files:
                target = out / path.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
                text.append(path.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(text)


def stub(library, text):
    """A text-based library: what its linker knows of a library of macOS."""
    names = set(re.findall(r"\b[A-Za-z_]\w+", text))
    if library == "pcre2-8":  # whose headers paste the suffix
        names |= {f"{name}_8" for name in names}
    symbols = ", ".join(f"_{name}" for name in sorted(names))
    targets = "[ x86_64-macos, arm64-macos ]"
    return (
        f"--- !tapi-tbd\ntbd-version: 4\ntargets: {targets}\ninstall-name: '/usr/local/lib/lib{library}.dylib'\n"
        f"exports:\n  - targets: {targets}\n    symbols: [ {symbols} ]\n...\n"
    )


# zig takes a processor and its features where other compilers take an architecture.
COMPILER = """#!/bin/sh
for word; do
    shift
    case $word in -march=armv8.2-a+*) word=-mcpu=generic+v8_2a+${{word##*+}} ;; esac
    set -- "$@" "$word"
done
exec "{zig}" cc -target "$SKV_MAC_TARGET" "$@"
"""


def write_tool(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


def main():
    zig, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    for folder in ("bin", "include", "lib", "pkgconfig"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    write_tool(out / "bin/cc", COMPILER.format(zig=zig))
    for tool in ("ar", "ranlib"):
        write_tool(out / "bin" / tool, f'#!/bin/sh\nexec "{zig}" {tool} "$@"\n')
    for module, library, names in LIBRARIES:
        text = copy_headers(names, out / "include")
        if not text:
            sys.exit(f"mac_stubs: no headers of {module} here: script/setup build")
        (out / f"lib/lib{library}.tbd").write_text(stub(library, text), encoding="utf-8")
        version = subprocess.run(["pkg-config", "--modversion", module], capture_output=True, text=True, check=True)
        (out / f"pkgconfig/{module}.pc").write_text(
            f"Name: {module}\nDescription: a stub\nVersion: {version.stdout.strip()}\n"
            f"Cflags: -isystem {out}/include\nLibs: -L{out}/lib -l{library}\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
