#!/usr/bin/env python3
"""Checks the rules of CONTRIBUTING.md that a machine can check.

    tools/tidy.py [--root DIR] [--build DIR] [--no-compile]

Prints one line `file:line: rule: message` a violation and exits with 1 if there is any.
With --build it reads compile_commands.json there, so that no .c is left out of the build, and
libskv.a, so that no writable data hides in an object and no instruction runs on a processor that
lacks it: the suffix of a kernel's file says which ones it may use, and other code reaches it only
through a table of pointers. The symbols of its objects tell which folder calls which, what lacks the
prefix, what nobody calls, and how many objects of a folder call each other in circles.
tools/tidy_allow.txt holds the exceptions of before each rule, and how often the comments of a room
use the words of TANGLED; these numbers may only fall.
"""

import argparse
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import null_style
from tidy_links import PREFIX, Links

MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 800
MAX_COLUMNS = 100
MAX_PARAMETERS = 6
ALLOW_FILE = "tools/tidy_allow.txt"
EXPORTED = "exported"
KNOT = "knot"
WORDS = "words"
C_FOLDERS = ("include", "src", "cli", "bench", "examples", "tests", "fuzz")
TEXT_FOLDERS = C_FOLDERS + ("tools", "script", "cmake", "docs", "man", "completion")
PROGRAM_FOLDERS = ("cli", "bench", "examples")
# Rooms whose comments are counted, the words that make a sentence tangled ("what others hold", "whom nobody
# knows", "behind the last one"), and how far their number for 1,000 words may fall before its line has to.
ROOMS = ("include", "cli", "src/base", "src/common", "src/engine", "src/language", "src/learning", "src/serving")
TANGLED = frozenset("what who whom whose whoever nobody somebody everybody behind".split())
CLEARLY = 0.5

# ------------------------------------------------------------------------------------------
# Include directions: a folder -> the folders it may include. The rule of the nearest folder above a
# file counts. base lies below everything, language and the ladder of the engine above it; the engine
# itself joins the two, since it reads vocabularies and follows grammars. Learning and serving use it.
# Kernels see nothing but themselves.
BASE = {"include/skv", "src/base", "src/base/format"}
TEXT = BASE | {"src/language/text"}
LANGUAGE = TEXT | {"src/language", "src/language/grammar"}
LADDER = ("backend", "kv", "model", "prefill")
MAY_INCLUDE = {
    "include/skv": {"include/skv"},
    "src/base": {"include/skv", "src/base"},
    "src/base/format": BASE,
    "src/common": {"include/skv", "src/base", "src/common"},
    "src/language": LANGUAGE,
    "src/language/text": TEXT | {"src/language/text/jinja"},
    "src/language/text/jinja": {"include/skv", "src/base", "src/language/text/jinja"},
    "src/language/grammar": BASE | {"src/language/grammar"},
    "src/engine/kernels": {"src/engine/kernels"},
    "src/serving/http": {"include/skv", "src/common", "src/serving/http"},
    "src/serving/load": {"include/skv", "src/common", "src/serving/load"},
    "src/serving/store": {"include/skv", "src/common", "src/serving/store"},
    "cli": {"include/skv", "src/common", "cli"},
    "bench": TEXT | {"src/engine/kernels", "bench"},
    "examples": {"include/skv", "examples"},
}
BELOW = BASE | {"src/engine/kernels"}
for layer in LADDER:
    BELOW = BELOW | {f"src/engine/{layer}"}
    MAY_INCLUDE[f"src/engine/{layer}"] = BELOW
MAY_INCLUDE["src/engine"] = BELOW | LANGUAGE | {"src/common", "src/engine"}
# Evaluation asks an engine what the documents teach, in the frame they are taught in; so what is read
# in training is a room of its own, which knows no model.
MAY_INCLUDE["src/learning/data"] = TEXT | {"src/learning/data"}
MAY_INCLUDE["src/learning/train"] = BELOW | TEXT | {
    "src/common",
    "src/learning/data",
    "src/learning/train",
}
MAY_INCLUDE["src/learning/eval"] = BELOW | LANGUAGE | {
    "src/engine",
    "src/learning/data",
    "src/learning/eval",
}
MAY_INCLUDE["src/serving/scheduler"] = BELOW | LANGUAGE | {
    "src/common",
    "src/engine",
    "src/serving/scheduler",
}
# Parts of the program, which the library does not hold.
PROGRAM_PARTS = ("cli", "src/serving/http", "src/serving/load", "src/serving/store")
# Where an #include "name" of the library and the program is looked for.
INCLUDE_ROOTS = ("src", "src/base", "src/engine", "src/language", "src/learning", "src/serving") + (
    PROGRAM_PARTS
)
# A pure kernel has no use for these. cpu.c asks the system what it runs on.
IMPURE_HEADERS = {
    "stdio.h",
    "stdlib.h",
    "pthread.h",
    "threads.h",
    "stdatomic.h",
    "unistd.h",
    "errno.h",
}
IMPURE_EXCEPT = {"src/engine/kernels/cpu.c"}
# The door to the operating system: its files, the headers that no other file may include, and the names of systems
# and the paths of Linux that stand nowhere else.
SYSTEM_DOOR = "src/base/system"
SYSTEM_HEADERS = re.compile(
    r"(linux|mach|asm|malloc)/.*|pthread/qos\.h|(execinfo|malloc|sched)\.h|"
    r"sys/(auxv|epoll|event|eventfd|filio|ioctl|prctl|random|signalfd|sockio|syscall|sysctl|timerfd)\.h"
)
SYSTEM_MACROS = re.compile(
    r"^[ \t]*#[ \t]*(?:el)?if.*\b(__APPLE__|__MACH__|__linux__|__gnu_linux__|__unix__|__GLIBC__|__FreeBSD__|_WIN32)\b", re.M
)
# pool.c yields a processor, which POSIX has in this header.
SYSTEM_EXCEPT = {("src/base/pool.c", "sched.h")}
# What a kernel may see of base: inline arithmetic.
PURE_HEADERS = {"base/size.h", "base/quant.h", "base/float16.h"}
# What programs may see of base: the buffer that the common folder writes to, errors, UTF-8, and the door to the system.
SHARED_HEADERS = {"base/buf.h", "base/fail.h", "base/utf8.h", "base/system.h", "base/system_sockets.h"}
# The doors between folders: the command that starts the HTTP server, and those of the load generator.
DOORS = {
    ("cli/cmd_serve.c", "server.h"),
    ("cli/cmd_cache.c", "offline.h"),
    ("cli/cmd_serve.c", "redis_store.h"),
    ("cli/cmd_serve.c", "reader_client.h"),
    ("cli/cmd_load.c", "load_requests.h"),
    ("cli/load_report.h", "load.h"),
}
# Calls follow the rules of includes, a call through a public header too. What may call upwards:
# the reading of a text for `transform --init ridge` and `quantize --text`, which need the model's activations.
LINK_DOORS = {("src/learning/train/calibrate.c", "src/engine"), ("src/engine/kernels/cpu.c", "src/base")}

# Calls that are banned: in every C file, in the library, in the library outside base/mem.c.
BANNED = """sprintf vsprintf strcpy strncpy strcat strncat strtok atoi atol atof sscanf rand srand
    gets alloca setjmp longjmp tmpnam mktemp system popen"""
BANNED_IN_SRC = """exit _exit abort atexit printf vprintf puts putchar perror getenv setenv signal
    sigaction setlocale"""
BANNED_ALLOCATORS = """malloc calloc realloc free aligned_alloc posix_memalign strdup strndup
    asprintf getline"""
ALLOCATOR_HOME = "src/base/mem.c"

# The parts of a lane, and the files of the scheduler that write them (scheduler/lane.h has the reasons).
# lane.c makes and frees them all.
LANE_FOLDER = "src/serving/scheduler"
LANE_OWNERS = {
    "queue": {"scheduler.c", "admit.c", "lanes.c"},
    "disk": {"keep.c"},
    "remote": {"remote.c"},
    "checkpoints": {"checkpoints.c"},
    "stored": {"store_prompt.c"},
    "rows": {"keep_rows.c"},
    "mask": {"masks.c"},
    "choice": {"choose.c"},
    "draft": {"drafts.c"},
    "output": {"output.c"},
}
LANE_WRITE = re.compile(
    r"\b(?:lane|fork|from|best|largest|youngest|oldest|before|next)->("
    + "|".join(LANE_OWNERS)
    + r")\b(?:\.\w+|\[[^\]]*\])*\s*(?:[-+*/%&|^]?=(?!=)|\+\+|--)"
)

# The instruction sets that a kernel's file may use, by its suffix (CMakeLists.txt has the flags).
INSTRUCTION_SETS = {
    "avx2": {"avx2"},
    "avxvnni": {"avx2", "avxvnni"},
    "avx512": {"avx2", "avx512"},
    "avx512vnni": {"avx2", "avx512", "avx512vnni"},
    "avx512bf16": {"avx2", "avx512", "avx512vnni", "avx512bf16"},
    "amx": {"avx2", "avx512", "avx512vnni", "avx512bf16", "amx"},
    "neondot": {"neondot"},
    "neoni8mm": {"neoni8mm"},
    "neonbf16": {"neonbf16"},
}
# How an instruction of each set looks to objdump, the most special one first. What begins with v is
# encoded with VEX or EVEX, whatever the width of its registers.
INSTRUCTIONS = {
    "elf64-x86-64": (
        ("amx", re.compile(r"(ld|st)tilecfg|tile(load|store|zero|release)|tdp")),
        ("avx512bf16", re.compile(r"vdpbf16|vcvtne\w*bf16")),
        ("avxvnni", re.compile(r"\{vex\} vpdp")),
        ("avx512vnni", re.compile(r"vpdp")),
        ("avx512", re.compile(r"k[a-z]+[bwdq] |.*%(zmm|[xy]mm(1[6-9]|2\d|3[01])|k[0-7])")),
        ("avx2", re.compile(r"v[a-z]")),
    ),
    "elf64-littleaarch64": (
        ("neonbf16", re.compile(r"bf(mmla|dot|mlal|cvt)")),
        ("neoni8mm", re.compile(r"(us?|s)mmla|usdot|sudot")),
        ("neondot", re.compile(r"[su]dot\b")),
    ),
}


def call_pattern(names):
    return re.compile(r"(?<![\w.>])(" + "|".join(names.split()) + r")\s*\(")


CALLS = call_pattern(BANNED)
CALLS_IN_SRC = call_pattern(BANNED_IN_SRC)
CALLS_ALLOCATING = call_pattern(BANNED_ALLOCATORS)
PRINTS_TO_STREAM = re.compile(r"\bfprintf\s*\(\s*(stderr|stdout)\b")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b|^(<{7}|={7}|>{7})( .*)?$", re.M)
TOKENS = re.compile(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)


def blank(text, keep_strings=False):
    """The text with comments (and strings) replaced by spaces, line by line."""

    def spaces(match):
        token = match.group(0)
        if keep_strings and token[0] in "\"'":
            return token
        return re.sub(r"[^\n]", " ", token)

    return TOKENS.sub(spaces, text)


def words_of_comments(text):
    for match in TOKENS.finditer(text):
        if match.group(0)[0] == "/":
            yield from re.findall(r"[a-z]+", match.group(0).lower())


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


class Source:
    """One C file: its path from the root, its text, and the text without comments."""

    def __init__(self, root, path):
        self.path = path.relative_to(root).as_posix()
        self.text = path.read_text(encoding="utf-8", errors="replace")
        self.lines = self.text.splitlines()

    @functools.cached_property
    def code(self):
        return blank(self.text)

    @functools.cached_property
    def code_with_strings(self):
        return blank(self.text, keep_strings=True)

    @property
    def folder(self):
        """The unit of the include rules: "src/base", "cli", ...; a rule may name a subfolder."""
        folder = self.path.rpartition("/")[0]
        while "/" in folder and folder not in MAY_INCLUDE:
            folder = folder.rpartition("/")[0]
        return folder if folder in MAY_INCLUDE else self.path.split("/")[0]

    @property
    def in_library(self):
        return self.inside("src") and not self.inside(*PROGRAM_PARTS)

    def inside(self, *folders):
        return self.path.startswith(tuple(f + "/" for f in folders))


class Tidy:
    def __init__(self, root, build=None, compile_headers=True):
        self.root = Path(root).resolve()
        self.build = Path(build).resolve() if build else None
        self.compile_headers = compile_headers
        self.found = []
        self.sources = [Source(self.root, p) for p in self.files(C_FOLDERS, (".c", ".h", ".inc"))]

    def files(self, folders, suffixes=None):
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                if path.is_file() and (suffixes is None or path.suffix in suffixes):
                    yield path

    def report(self, path, line, rule, message):
        self.found.append((path, line, rule, message))

    def run(self):
        for source in self.sources:
            self.check_includes(source)
            self.check_system(source)
            self.check_length(source)
            self.check_calls(source)
            self.check_null(source)
            self.check_lanes(source)
            self.check_waits(source)
            self.check_statics(source)
            self.check_guard(source)
            self.check_shapes(source)
            self.check_parameters(source)
        self.allowed = self.read_allow_list()
        self.check_names()
        self.check_functions()
        self.check_words()
        self.check_unfinished()
        if self.compile_headers:
            self.check_headers_alone()
        if self.build:
            self.check_built()
            self.check_data()
            self.check_links()
            self.check_instructions()
        return sorted(self.found)

    # -------------------------------------------------------------------------------- includes

    def included_folder(self, source, name):
        """The folder of an #include "name", or None for a name that is not in the tree."""
        for base in (
            source.path.rpartition("/")[0],
            "include",
            *INCLUDE_ROOTS,
            "bench",
            "tests/support",
            "fuzz",
        ):
            path = self.root / base / name
            if path.is_file():
                return Source(self.root, path.resolve()).folder
        return None

    def check_includes(self, source):
        names = [
            (line_of(source.text, m.start()), m.group(1), m.group(2))
            for m in re.finditer(
                r'^[ \t]*#[ \t]*include[ \t]+([<"])([^>"]+)', source.code_with_strings, re.M
            )
        ]
        allowed = MAY_INCLUDE.get(source.folder)
        if source.inside("src", "include") and allowed is None:
            self.report(source.path, 1, "folder", f"{source.folder} has no include rule")
        for line, kind, name in names:
            if kind == "<":
                if (
                    source.folder == "src/engine/kernels"
                    and name in IMPURE_HEADERS
                    and source.path not in IMPURE_EXCEPT
                ):
                    self.report(source.path, line, "include", f"a kernel is pure: no <{name}>")
                continue
            folder = self.included_folder(source, name)
            if folder is None:
                self.report(source.path, line, "include", f'"{name}" is not in the tree')
            elif source.folder == "src/engine/kernels" and name in PURE_HEADERS:
                continue
            elif source.path in IMPURE_EXCEPT and name == "base/system.h":
                continue
            elif source.inside(*PROGRAM_PARTS) and name in SHARED_HEADERS:
                continue
            elif (source.path, name) in DOORS:
                continue
            elif allowed is not None and folder not in allowed:
                self.report(
                    source.path, line, "include", f"{source.folder} may not include {folder}"
                )
        self.check_own_header_first(source, names)

    def check_own_header_first(self, source, names):
        own = self.root / (source.path[:-2] + ".h")
        if (
            not source.path.endswith(".c")
            or not source.inside("src", "cli")
            or not own.is_file()
        ):
            return
        if not names or not names[0][2].endswith(own.name):
            self.report(
                source.path, names[0][0] if names else 1, "include", f"{own.name} comes first"
            )

    def check_system(self, source):
        """What differs between systems stands behind the door. Tests may use Linux, where they run."""
        if source.path.startswith(SYSTEM_DOOR) or source.inside("tests/install", "bench/peers"):
            return
        for match in SYSTEM_MACROS.finditer(source.code):
            line = line_of(source.code, match.start(1))
            self.report(source.path, line, "system", f"{match.group(1)}: the build chooses files, behind base/system.h")
        if not source.inside("src", "include", *PROGRAM_FOLDERS):
            return
        for match in re.finditer(r"^[ \t]*#[ \t]*include[ \t]+<([^>]+)>", source.code, re.M):
            name = match.group(1)
            if SYSTEM_HEADERS.fullmatch(name) and (source.path, name) not in SYSTEM_EXCEPT:
                line = line_of(source.code, match.start())
                self.report(source.path, line, "system", f"<{name}> is behind base/system.h")

    # ---------------------------------------------------------------------------------- lengths

    def check_length(self, source):
        opening = source.text.partition("*/")[0]
        made = re.search(r"\b(made|generated) by tools/[\w/]+", opening)
        if len(source.lines) > MAX_FILE_LINES and not made:
            self.report(
                source.path,
                MAX_FILE_LINES + 1,
                "file-length",
                f"{len(source.lines)} lines, at most {MAX_FILE_LINES}",
            )
        for i, line in enumerate(source.lines, 1):
            if len(line) > MAX_COLUMNS:
                self.report(
                    source.path, i, "line-length", f"{len(line)} columns, at most {MAX_COLUMNS}"
                )

    def check_functions(self):
        allowed = {
            key: at for key, at in self.allowed.items() if at[1] != EXPORTED and key[1] not in (KNOT, WORDS)
        }
        for path, line, name, n in self.functions():
            if "/ref/" in path:
                continue
            limit = allowed.pop((path, name), (None, 0))[1]
            if n > MAX_FUNCTION_LINES and n > limit:
                self.report(
                    path,
                    line,
                    "function-length",
                    f"{name}: {n} lines, at most {max(limit, MAX_FUNCTION_LINES)}",
                )
            elif limit and n <= MAX_FUNCTION_LINES:
                self.report(ALLOW_FILE, 1, "allow-list", f"{path} {name} is short now: remove it")
            elif n < limit:
                self.report(
                    ALLOW_FILE, 1, "allow-list", f"{path} {name} has {n} lines now: lower it"
                )
        for (path, name), (line, _) in allowed.items():
            self.report(ALLOW_FILE, line, "allow-list", f"{path} {name} is gone: remove it")

    def read_allow_list(self):
        """Lines "path function lines" of functions that were long when the rule came,
        "path function exported" of those that only their own file called, "folder knot objects"
        of folders whose objects called each other in circles, and "room words rate" of comments."""
        allowed = {}
        path = self.root / ALLOW_FILE
        if path.is_file():
            for i, line in enumerate(path.read_text().splitlines(), 1):
                words = line.partition("#")[0].split()
                if len(words) == 3:
                    number = float if words[1] == WORDS else int
                    limit = words[2] if words[2] == EXPORTED else number(words[2])
                    allowed[words[0], words[1]] = i, limit
                elif words:
                    self.report(ALLOW_FILE, i, "allow-list", "not 'path function lines'")
        return allowed

    def functions(self):
        """(path, line, name, lines) of every function, by ctags, or by the layout without it."""
        files = [s.path for s in self.sources]
        found = None
        if has_universal_ctags() and files:
            found = functions_by_ctags(self.root, files)
        if found is None:
            found = [(s.path, *f) for s in self.sources for f in functions_by_layout(s.code)]
        return found

    # ------------------------------------------------------------------------------------ words

    def check_words(self):
        """How many of 1,000 words in a room's comments are TANGLED: the number may only fall."""
        allowed = {key[0]: at for key, at in self.allowed.items() if key[1] == WORDS}
        for room in ROOMS:
            line, limit = allowed.pop(room, (1, 0.0))
            rate = self.tangled(room)
            if rate > limit:
                names = " ".join(sorted(TANGLED))
                message = f"{rate} of 1,000 words in comments are one of '{names}', at most {limit}"
                self.report(room, 1, WORDS, message)
            elif rate < limit - CLEARLY or rate == 0 < limit:
                change = "lower it" if rate else "remove it"
                self.report(ALLOW_FILE, line, "allow-list", f"{room} words are {rate} now: {change}")
        for room, (line, _) in allowed.items():
            self.report(ALLOW_FILE, line, "allow-list", f"{room} is no room: remove it")

    def tangled(self, room):
        words = [w for source in self.sources if source.inside(room) for w in words_of_comments(source.text)]
        n = sum(word in TANGLED for word in words)
        return round(1000 * n / len(words), 1) if words else 0.0

    # ------------------------------------------------------------------------------------ names

    def check_names(self):
        seen = {}
        for path in self.files(C_FOLDERS + ("tools", "script")):
            relative = path.relative_to(self.root).as_posix()
            if (
                "/data/" in relative
                or "/corpus/" in relative
                or path.suffix not in (".c", ".h", ".inc", ".py", ".sh")
            ):
                continue
            if path.name in seen:
                self.report(relative, 1, "file-name", f"{seen[path.name]} has the same name")
            seen[path.name] = relative

    # ------------------------------------------------------------------------------------ calls

    def check_calls(self, source):
        patterns = [CALLS]
        if source.in_library:
            patterns += [CALLS_IN_SRC, PRINTS_TO_STREAM]
            if source.path != ALLOCATOR_HOME:
                patterns.append(CALLS_ALLOCATING)
        for pattern in patterns:
            for match in pattern.finditer(source.code):
                self.report(
                    source.path,
                    line_of(source.code, match.start()),
                    "banned-call",
                    match.group(0).rstrip("( ") + " is banned here",
                )

    def check_null(self, source):
        for line in null_style.lines(source.text):
            self.report(source.path, line, "null", "a pointer is its own condition: tools/null_style.py --fix")

    def check_waits(self, source):
        """A wait that ends by the time of day ends at another moment when somebody sets the clock."""
        if source.path.startswith(SYSTEM_DOOR):
            return
        if source.in_library and "pthread_cond_timedwait" in source.code and "CLOCK_REALTIME" in source.code:
            line = line_of(source.code, source.code.index("CLOCK_REALTIME"))
            self.report(source.path, line, "wait", "timed waits go by skv_clock_in and skv_cond_wait_until (base/system.h)")

    def check_lanes(self, source):
        if not source.inside(LANE_FOLDER) or source.path == LANE_FOLDER + "/lane.c":
            return
        for match in LANE_WRITE.finditer(source.code):
            part, line = match.group(1), line_of(source.code, match.start())
            if Path(source.path).name not in LANE_OWNERS[part]:
                self.report(source.path, line, "lane", f"lane->{part} belongs to {', '.join(sorted(LANE_OWNERS[part]))}")

    # ---------------------------------------------------------------------------------- statics

    def check_statics(self, source):
        if not source.inside("src", "include", *PROGRAM_FOLDERS):
            return
        for line, text in file_scope_statements(source.code):
            if is_mutable_object(text):
                self.report(source.path, line, "mutable-static", shorten(text))
        for match in re.finditer(r"^[ \t]+static\b([^;{=]*)([;{=])", source.code, re.M):
            if is_mutable_object("static" + match.group(1) + match.group(2)):
                self.report(
                    source.path,
                    line_of(source.code, match.start()),
                    "mutable-static",
                    shorten(match.group(0)),
                )

    # ----------------------------------------------------------------------------------- guards

    def check_guard(self, source):
        if not source.path.endswith(".h"):
            return
        if re.search(r"#\s*pragma\s+once", source.code):
            self.report(source.path, 1, "include-guard", "#pragma once; use a guard")
        match = re.match(r"\s*#ifndef (SKV_\w+_H)\n#define (\w+)\n", source.code)
        if (
            not match
            or match.group(1) != match.group(2)
            or not source.code.rstrip().endswith("#endif")
        ):
            self.report(
                source.path, 1, "include-guard", "no guard SKV_..._H around the whole header"
            )
            return
        for other in self.sources:
            if (
                other is not source
                and other.path.endswith(".h")
                and re.search(rf"#define {match.group(1)}\b", other.code)
            ):
                self.report(
                    source.path, 1, "include-guard", f"{match.group(1)} also guards {other.path}"
                )

    # ------------------------------------------------------------------------------- parameters

    def check_parameters(self, source):
        """What is public takes a struct rather than many parameters."""
        if not source.inside("include"):
            return
        for line, text in file_scope_statements(source.code):
            match = re.search(r"(\w+)\s*\(", text)
            n = count_parameters(text, match.end()) if match else 0
            if n > MAX_PARAMETERS:
                message = f"{match.group(1)}: {n} parameters, at most {MAX_PARAMETERS}"
                self.report(source.path, line, "parameters", message)

    # ----------------------------------------------------------------------------------- shapes

    def check_shapes(self, source):
        """Every `float *` field of a struct tells its shape: float *wq; /* [D, H * Dh] */"""
        if not source.inside("src/engine/model", "src/engine/kv", "src/engine/backend"):
            return
        for start, end in struct_bodies(source.code):
            for match in re.finditer(r"\bfloat\b[^;(){}]*\*[^;(){}]*;", source.code[start:end]):
                last = line_of(source.code, start + match.end())
                comment = source.lines[last - 1].partition("/*")[2]
                before = source.lines[last - 2].strip() if last > 1 else ""
                alone_before = before if before.startswith("/*") else ""
                if "[" not in comment + alone_before:
                    self.report(
                        source.path,
                        last,
                        "shape",
                        shorten(match.group(0)) + " has no shape comment",
                    )

    # ------------------------------------------------------------------------------- unfinished

    def check_unfinished(self):
        exempt = {"tools/tidy.py", "tests/repository/test_tidy.py"}
        for path in self.files(TEXT_FOLDERS):
            relative = path.relative_to(self.root).as_posix()
            if relative in exempt or "/data/" in relative or "/corpus/" in relative:
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            for match in UNFINISHED.finditer(text):
                self.report(relative, line_of(text, match.start()), "unfinished", match.group(0))

    # ---------------------------------------------------------------------------------- headers

    def check_headers_alone(self):
        jobs = []
        for source in self.sources:
            if source.path.endswith(".h"):
                jobs.append((source, compile_command(source, "c")))
                if source.inside("include/skv"):
                    jobs.append((source, compile_command(source, "c++")))
        jobs = [(s, c) for s, c in jobs if c and shutil.which(c[0])]
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for (source, command), errors in zip(jobs, threads.map(self.compile, jobs)):
                if errors:
                    first = next((l for l in errors.splitlines() if "error" in l), errors.strip())
                    self.report(source.path, 1, "header-alone", f"{command[0]}: {first}")

    def compile(self, job):
        result = subprocess.run(job[1], cwd=self.root, capture_output=True, text=True, check=False)
        return result.stderr if result.returncode else ""

    # ------------------------------------------------------------------------------------ build

    def check_built(self):
        path = self.build / "compile_commands.json"
        built = {Path(entry["file"]).resolve() for entry in json.loads(path.read_text())}
        foreign = {"x86_64": "arm", "aarch64": "x86"}.get(os.uname().machine)
        for source in self.sources:
            # What is compared with us may need libraries that the project does not: built by hand.
            # The door has a file for each system.
            foreign_system = source.path.startswith(SYSTEM_DOOR + "_")
            if not source.path.endswith(".c") or foreign_system or source.inside(
                "tests/install", "bench/peers", f"src/engine/kernels/{foreign}"
            ):
                continue
            if self.root / source.path not in built:
                self.report(source.path, 1, "not-built", "no target compiles it")

    def check_data(self):
        """Objects in .data or .bss of the library are mutable globals, however they came there."""
        library = self.build / "libskv.a"
        if not library.is_file() or not shutil.which("objdump"):
            return
        table = subprocess.run(
            ["objdump", "-t", library], capture_output=True, text=True, check=True
        ).stdout
        member = "?"
        for line in table.splitlines():
            if line.endswith(":     file format elf64-x86-64") or ":     file format" in line:
                member = line.split(":")[0]
            match = re.search(
                r" O (\.t?(?:data|bss)(?!\.rel\.ro)\S*|\*COM\*)\s+[0-9a-f]+ +(?:\.hidden )?(\S+)$",
                line,
            )
            if match:
                self.report(
                    member, 1, "mutable-static", f"{match.group(2)} lies in {match.group(1)}"
                )

    def check_links(self):
        """Calls across folders, prefixes, and exports without a use, from the objects' symbols."""
        links = Links(self.root, self.build)
        sources = {source.path: source for source in self.sources}
        public = set()
        for source in self.sources:
            if source.inside("include") or source.path[len("src/") :] in SHARED_HEADERS:
                public.update(re.findall(r"\w+", source.code))
        for user, symbol, home in links.edges():
            if user in sources and home in sources:
                self.check_edge(sources[user], symbol, sources[home], public)
        for symbol, home in links.defined.items():
            if home in sources and sources[home].in_library and not symbol.startswith(PREFIX):
                self.report_symbol(sources[home], "prefix", symbol, f"has no {PREFIX}")
        self.check_knots(links)
        if any(path.startswith("tests/") for path in links.sources):
            self.check_unused(links, sources, public)

    def check_knots(self, links):
        """A circle of calls makes one room of several: the number of its objects may only fall."""
        allowed = {key: at for key, at in self.allowed.items() if key[1] == KNOT}
        for folder, paths in links.knots().items():
            if not folder.startswith(("src/", "cli")):
                continue
            limit = allowed.pop((folder, KNOT), (None, 0))[1]
            if len(paths) > limit:
                names = ", ".join(Path(path).name for path in paths)
                message = f"{len(paths)} objects of {folder} call in circles, at most {limit}: {names}"
                self.report(paths[0], 1, KNOT, message)
            elif len(paths) < limit:
                message = f"{folder} knot has {len(paths)} objects now: lower it"
                self.report(ALLOW_FILE, 1, "allow-list", message)
        for (folder, _), (line, _) in allowed.items():
            self.report(ALLOW_FILE, line, "allow-list", f"{folder} knot is cut: remove it")

    def check_edge(self, user, symbol, home, public):
        allowed = MAY_INCLUDE.get(user.folder)
        if allowed is None or home.folder in allowed or (user.path, home.folder) in LINK_DOORS:
            return
        if not user.in_library:
            if symbol in public or home.folder in self.doors(user.folder):
                return
        message = f"{user.folder} may not call {home.folder}: {home.path} defines it"
        self.report_symbol(user, "link", symbol, message)

    def doors(self, folder):
        """The folders that doors of this folder lead to."""
        return {
            self.included_folder(source, name)
            for source in self.sources
            for path, name in DOORS
            if source.path == path and source.folder == folder
        }

    def check_unused(self, links, sources, public):
        allowed = {key: at for key, at in self.allowed.items() if at[1] == EXPORTED}
        fuzzed = set()  # by targets that this build leaves out
        for source in self.sources:
            if source.inside("fuzz"):
                fuzzed.update(re.findall(r"\w+", source.code))
        for symbol, home in links.unused():
            if symbol.startswith("__wrap_"):  # the linker calls it for others (--wrap)
                continue
            if home not in sources or symbol in public | fuzzed or allowed.pop((home, symbol), None):
                continue
            self.report_symbol(sources[home], "unused-export", symbol, "only its own file uses it")
        for (path, name), (line, _) in allowed.items():
            self.report(ALLOW_FILE, line, "allow-list", f"{path} {name} is mended: remove it")

    def report_symbol(self, source, rule, symbol, message):
        at = re.search(rf"\b{symbol}\b", source.code)
        line = line_of(source.code, at.start()) if at else 1
        self.report(source.path, line, rule, f"{symbol}: {message}")

    def check_instructions(self):
        """No code runs an instruction, or calls into an object, that its own file may not use."""
        library = self.build / "libskv.a"
        if not library.is_file() or not shutil.which("objdump"):
            return
        command = ["objdump", "-dr", "--no-show-raw-insn", library]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for member, message in instruction_faults(text):
            self.report(member, 1, "instruction", message)


# ------------------------------------------------------------------------------------------


def sets_of(member):
    """The instruction sets that an object of the library may use."""
    suffix = member.partition(".")[0].rpartition("_")[2]
    return INSTRUCTION_SETS.get(suffix, set())


def instruction_faults(disassembly):
    """(object, message) of each function that uses, or calls, what its file's suffix does not allow."""
    homes, calls, seen = {}, [], set()  # homes: function -> its object
    member, function, kinds = "?", "?", ()
    for line in disassembly.splitlines():
        if match := re.match(r"(\S+): +file format (\S+)", line):
            member, kinds = match.group(1), INSTRUCTIONS.get(match.group(2), ())
        elif match := re.match(r"[0-9a-f]+ <(\S+)>:", line):
            function = match.group(1)
            homes.setdefault(function, member)
        elif match := re.match(r"\s+[0-9a-f]+: (?:R_X86_64_PLT32|R_AARCH64_(?:CALL|JUMP)26)\s+(\w+)", line):
            calls.append((member, function, match.group(1)))
        elif match := re.match(r" +[0-9a-f]+:\t(?!R_)(.*)", line):
            used = next((name for name, looks in kinds if looks.match(match.group(1))), None)
            if used and used not in sets_of(member) and (member, function) not in seen:
                seen.add((member, function))
                yield member, f"{function} has {shorten(match.group(1))}, which needs {used}"
    for member, function, callee in calls:
        beyond = sets_of(homes.get(callee, "")) - sets_of(member)
        if beyond:
            yield member, f"{function} calls {callee}, which may use {', '.join(sorted(beyond))}"


def shorten(text):
    return " ".join(text.split())[:60]


@functools.lru_cache(maxsize=None)
def has_universal_ctags():
    if not shutil.which("ctags"):
        return False
    version = subprocess.run(["ctags", "--version"], capture_output=True, text=True, check=False)
    return "Universal" in version.stdout


def functions_by_ctags(root, files):
    command = [
        "ctags",
        "-f",
        "-",
        "--languages=C",
        "--langmap=C:.c.h.inc",
        "--kinds-C=f",
        "--fields=+ne",
        "--sort=no",
        "-L",
        "-",
    ]
    result = subprocess.run(
        command, cwd=root, input="\n".join(files), capture_output=True, text=True, check=False
    )
    if result.returncode or not result.stdout:
        return None
    found = []
    for line in result.stdout.splitlines():
        fields = line.split("\t")
        start = re.search(r"\tline:(\d+)", line)
        end = re.search(r"\tend:(\d+)", line)
        if start and end:
            first, last = int(start.group(1)), int(end.group(1))
            found.append((fields[1], first, fields[0], last - first + 1))
    return found


def functions_by_layout(code):
    """A function's body starts with "{" and ends with "}" in the first column."""
    lines = code.splitlines()
    for i, line in enumerate(lines):
        if line.rstrip() != "{":
            continue
        end = next((j for j in range(i, len(lines)) if lines[j].rstrip() == "}"), len(lines) - 1)
        start = i - 1
        while start > 0 and lines[start - 1].strip() and lines[start - 1][-1] not in ";}":
            start -= 1
        name = re.search(r"(\w+)\s*\(", " ".join(lines[start:i]))
        yield start + 1, name.group(1) if name else "?", end - start + 1


def count_parameters(text, start):
    """Of a function whose list begins at `start`; commas inside brackets are others'."""
    depth, n = 1, 1
    for c in text[start:]:
        depth += (c in "([{") - (c in ")]}")
        n += c == "," and depth == 1
        if depth == 0:
            break
    return n


def file_scope_statements(code):
    """(line, text) of what stands outside all braces; text ends with ";", "=" or "{"."""
    code = re.sub(
        r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",
        lambda m: re.sub(r"[^\n]", " ", m.group(0)),
        code,
        flags=re.M,
    )
    depth, start, i = 0, 0, 0
    while i < len(code):
        c = code[i]
        if c == "{":
            if depth == 0 and code[start:i].strip():
                yield line_of(code, start + len(code[start:i]) - len(code[start:i].lstrip())), code[
                    start : i + 1
                ]
            depth += 1
        elif c == "}":
            depth -= 1
            start = i + 1
        elif depth == 0 and c in ";=":
            text = code[start : i + 1]
            if text.strip(" \n\t;="):
                yield line_of(code, start + len(text) - len(text.lstrip())), text
            start = i + 1
            if c == "=":
                i = skip_initialiser(code, i)
                start = i + 1
        i += 1


def skip_initialiser(code, i):
    depth = 0
    while i < len(code) and not (code[i] == ";" and depth == 0):
        depth += (code[i] in "{(") - (code[i] in "})")
        i += 1
    return i


def is_mutable_object(text):
    """Whether a declaration makes an object that can change; text ends with ";", "=" or "{"."""
    text = " ".join(text.split())
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)|_Alignas\s*\([^)]*\)", "", text)
    text = re.sub(r"^\s*(SKV_[A-Z_]+\s+)+", "", text)  # SKV_BEGIN, SKV_API, ...
    text = re.sub(r"\[[^][]*\]", "[]", text)  # a product in a size is no pointer
    declaration, end = text[:-1].strip(), text[-1]
    if end == "{" or re.match(
        r"(typedef|extern|_Static_assert|static_assert|_Pragma)\b", declaration
    ):
        return False
    if re.fullmatch(r"(struct|union|enum)\s+\w+", declaration) or not re.search(
        r"\w\s*[*\s]\s*\(?\*?\w", declaration
    ):
        return False
    if re.match(r"\w+_fn\b[^*]*$", declaration):
        return False  # functions declared by their type
    pointer = re.match(r"[^(]*\(\s*\*([^)]*)\)", declaration)  # a pointer to a function or an array
    if pointer:
        return not re.search(r"\bconst\b", pointer.group(1))
    if "(" in declaration:
        return False  # a prototype, or a macro
    if "*" in declaration:
        return not re.search(r"\bconst\b", declaration.rpartition("*")[2])
    return not re.search(r"\bconst\b", declaration)


def struct_bodies(code):
    """(start, end) of the body of every struct and union."""
    for match in re.finditer(r"\b(?:struct|union)\b\s*\w*\s*\{", code):
        depth, i = 1, match.end()
        while i < len(code) and depth:
            depth += (code[i] == "{") - (code[i] == "}")
            i += 1
        yield match.end(), i


def compile_command(source, language):
    """The command that compiles a header by itself; None where there is no compiler for it."""
    command = {"c": ["cc", "-std=c11"], "c++": ["c++", "-std=c++11", "-Wpedantic"]}[language]
    machine = os.uname().machine
    if "/x86/" in source.path:
        if machine != "x86_64":
            return None
        command = command + [
            "-mavx2",
            "-mfma",
            "-mf16c",
            "-mavx512f",
            "-mavx512bw",
            "-mavx512dq",
            "-mavx512vl",
            "-mavx512vnni",
            "-mavx512bf16",
        ]
    if "/arm/" in source.path and machine != "aarch64":
        command = ["aarch64-linux-gnu-gcc", "-std=c11"]
    return command + [
        "-Wall",
        "-Wextra",
        "-Werror",
        "-D_POSIX_C_SOURCE=200809L",
        "-Iinclude",
        *(f"-I{root}" for root in INCLUDE_ROOTS),
        "-Itests",
        "-fsyntax-only",
        "-include",
        source.path,
        "-x",
        language,
        os.devnull,
    ]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--build", help="a build folder")
    parser.add_argument("--no-compile", action="store_true", help="do not compile the headers")
    arguments = parser.parse_args()
    tidy = Tidy(arguments.root, arguments.build, not arguments.no_compile)
    found = tidy.run()
    for path, line, rule, message in found:
        print(f"{path}:{line}: {rule}: {message}")
    print(f"tidy: {len(tidy.sources)} C files, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
