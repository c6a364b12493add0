#!/usr/bin/env python3
"""tools/tidy.py finds every violation that is planted, and nothing in a clean tree."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import tidy  # noqa: E402

CLEAN = {
    "include/skv/error.h": "#ifndef SKV_ERROR_H\n#define SKV_ERROR_H\nint skv_x(void);\n#endif\n",
    "src/base/mem.h": "#ifndef SKV_BASE_MEM_H\n#define SKV_BASE_MEM_H\nvoid skv_free(void *p);\n#endif\n",
    "src/base/mem.c": '#include "base/mem.h"\n\n#include <stdlib.h>\n\n'
    "void skv_free(void *p)\n{\n    free(p);\n}\n",
    "src/engine/kernels/kernels.h": "#ifndef SKV_KERNELS_H\n#define SKV_KERNELS_H\nvoid skv_add(float *y);\n#endif\n",
    "src/engine/model/model.h": '#ifndef SKV_MODEL_H\n#define SKV_MODEL_H\n#include "base/mem.h"\n'
    '#include "kernels/kernels.h"\n'
    "struct skv_model {\n    const float *wq; /* [D, H * Dh] */\n"
    "    float x;\n    float *(*get)(int i);\n};\n#endif\n",
    "src/engine/model/model.c": '#include "model/model.h"\n\n'
    "static const int table[] = {1, 2};\n"
    'static const char *const names[] = {"a = {", "; static int x;"};\n'
    "static int (*const calls[])(void) = {0};\n"
    "static int helper(int x);\n\n"
    "static int helper(int x)\n{\n"
    "    static const int local[] = {1};\n"
    "    /* free(x); static int y; */\n"
    '    const char *text = "free(x); sprintf(y); exit(1)";\n'
    "    return x + local[0] + table[0] + text[0] + names[0][0];\n}\n",
    "src/common/chart.h": "#ifndef SKV_COMMON_CHART_H\n#define SKV_COMMON_CHART_H\n#endif\n",
    "src/base/buf.h": "#ifndef SKV_BASE_BUF_H\n#define SKV_BASE_BUF_H\n#endif\n",
    "cli/main.c": '#include "skv/error.h"\n\nint main(void)\n{\n    return 0;\n}\n',
    "tests/test_x.c": '#include "model/model.h"\nstatic int counter;\n',
    "docs/page.md": "A page.\n",
}


def function(name, n_lines):
    """A function of n_lines lines, from its name to its brace."""
    return f"int {name}(void)\n{{\n" + "    ;\n" * (n_lines - 4) + "    return 0;\n}\n"


def compiled(root, path, objects):
    """An entry of compile_commands.json; with `objects` it is run."""
    entry = {"file": str(root / path), "directory": str(root)}
    if objects:
        output = "build/" + path.replace("/", "_") + ".o"
        (root / "build").mkdir(exist_ok=True)
        command = ["cc", "-Iinclude", "-Isrc", "-Isrc/engine", "-o", output, "-c", path]
        subprocess.run(command, cwd=root, check=True)
        entry["command"] = " ".join(command)
    return entry


class TidyTest(unittest.TestCase):
    def rules(self, changes, **options):
        """The (path, rule) pairs found in the clean tree with some files added or replaced."""
        return {(path, rule) for path, _, rule, _ in self.violations(changes, **options)}

    def violations(self, changes, compile_headers=False, build=None, objects=False):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            for path, text in {**CLEAN, **changes}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            if build is not None:
                entries = [compiled(root, path, objects) for path in build]
                (root / "build").mkdir(exist_ok=True)
                (root / "build/compile_commands.json").write_text(json.dumps(entries))
            return tidy.Tidy(
                root, root / "build" if build is not None else None, compile_headers
            ).run()

    def assert_finds(self, path, rule, text, **options):
        self.assertEqual(self.rules({path: text}, **options), {(path, rule)}, text)

    def test_parameters(self):
        def header(path, parameters):
            guard = "SKV_" + path.rpartition("/")[2].replace(".h", "_H").upper()
            return {path: f"#ifndef {guard}\n#define {guard}\nint skv_y({parameters});\n#endif\n"}

        six, seven = ", ".join(f"int a{i}" for i in range(6)), ", ".join(f"int a{i}" for i in range(7))
        calls_back = six.replace("int a5", "void (*a5)(int, int, int)")
        self.assertEqual(self.rules(header("include/skv/y.h", six)), set())
        self.assertEqual(self.rules(header("include/skv/y.h", calls_back)), set())
        self.assertEqual(self.rules(header("include/skv/y.h", seven)), {("include/skv/y.h", "parameters")})
        self.assertEqual(self.rules(header("src/base/y.h", seven)), set())  # the library's own

    def test_clean_tree(self):
        self.assertEqual(self.violations({}, compile_headers=True), [])

    def test_comparisons_with_null(self):
        body = "int skv_f(const char *p)\n{\n    return %s;\n}\n"
        for words in ("p == NULL", "p != NULL", "(p) !=\n NULL"):
            self.assert_finds("src/base/new.c", "null", body % words)
        fixed = tidy.null_style.fix("if (a->b[c(1)].d == NULL || *e != NULL) n = (f != NULL) + (g == NULL);")
        self.assertEqual(fixed, "if (!a->b[c(1)].d || *e) n = (!!f) + (!g);")
        self.assertEqual(tidy.null_style.lines('/* p == NULL */ "p == NULL"'), [])

    def test_owners_of_a_lane(self):
        body = "void skv_f(skv_lane *lane)\n{\n    %s;\n}\n"
        folder = "src/serving/scheduler/"
        for write in ("lane->mask.ready = false", "lane->choice.top[1].id += 1", "lane->rows.n++", "lane->mask = m"):
            self.assert_finds(folder + "advance.c", "lane", body % write)
        for path, words in [
            ("masks.c", "lane->mask.ready = false"),
            ("lane.c", "lane->mask.constraint = c"),
            ("advance.c", "return lane->mask.ready == lane->choice.pending"),
        ]:
            self.assertEqual(self.rules({folder + path: body % words}), set())

    def test_include_directions(self):
        for path, name in [
            ("src/base/new.c", "kernels/kernels.h"),
            ("src/base/new.c", "model/model.h"),
            ("src/engine/kernels/new.c", "base/mem.h"),
            ("src/engine/kernels/new.c", "skv/error.h"),
            ("src/base/format/new.c", "model/model.h"),
            ("src/base/format/new.c", "kernels/kernels.h"),
            ("src/base/format/new.c", "text/tokenizer.h"),
            ("src/engine/model/new.c", "text/tokenizer.h"),
            ("src/learning/data/new.c", "train/net.h"),
            ("src/learning/data/new.c", "kernels/kernels.h"),
            ("src/learning/eval/new.c", "train/net.h"),
            ("src/language/text/jinja/new.c", "text/tokenizer.h"),
            ("src/language/text/new.c", "model/model.h"),
            ("src/engine/backend/new.c", "model/model.h"),
            ("src/engine/kv/new.c", "model/model.h"),
            ("cli/new.c", "base/mem.h"),
            ("cli/new.c", "model/model.h"),
            ("src/common/new.c", "model/model.h"),
            ("src/engine/model/new.c", "common/chart.h"),
            ("src/serving/http/new.c", "base/mem.h"),
            ("bench/new.c", "model/model.h"),
            ("examples/new.c", "base/mem.h"),
            ("src/engine/model/new.c", "base/absent.h"),
        ]:
            self.assert_finds(path, "include", f'#include "{name}"\n')
        for path in ("cli/new.c", "src/serving/load/new.c", "src/serving/http/new.c", "src/learning/train/new.c"):
            for name in ("common/chart.h", "base/buf.h"):
                self.assertEqual(self.rules({path: f'#include "{name}"\n'}), set())
        size = "#ifndef SKV_BASE_SIZE_H\n#define SKV_BASE_SIZE_H\n#endif\n"
        pure = {"src/base/size.h": size, "src/engine/kernels/new.c": '#include "base/size.h"\n'}
        self.assertEqual(self.rules(pure), set())
        self.assertEqual(self.rules({"bench/new.c": '#include "base/mem.h"\n'}), set())
        self.assertEqual(self.rules({"src/engine/new.c": '#include "model/model.h"\n'}), set())
        self.assertEqual(self.rules({"src/learning/train/new.c": '#include "model/model.h"\n'}), set())
        engine = "#ifndef SKV_ENGINE_H\n#define SKV_ENGINE_H\n#endif\n"
        for path in ("src/engine/model/new.c", "src/engine/prefill/new.c", "src/learning/train/new.c"):
            self.assertEqual(
                self.rules({"src/engine/engine.h": engine, path: '#include "engine/engine.h"\n'}),
                {(path, "include")},
            )

    def test_programs_do_not_see_each_other(self):
        page = "#ifndef SKV_PAGE_H\n#define SKV_PAGE_H\n#endif\n"
        changes = {"src/serving/http/page.h": page, "cli/new.c": '#include "../src/serving/http/page.h"\n'}
        self.assertEqual(self.rules(changes), {("cli/new.c", "include")})

    def test_an_unknown_layer_needs_a_rule(self):
        self.assert_finds("src/misc/new.c", "folder", "const int skv_misc;\n")

    def test_kernels_are_pure(self):
        for header in ("stdio.h", "stdlib.h", "pthread.h"):
            self.assert_finds("src/engine/kernels/ref/new.c", "include", f"#include <{header}>\n")
        self.assertEqual(self.rules({"src/engine/kernels/cpu.c": "#include <stdio.h>\n"}), set())

    def test_systems_are_behind_one_door(self):
        for header in ("sys/eventfd.h", "sys/sysctl.h", "sys/auxv.h", "linux/sockios.h", "mach/mach.h", "malloc.h"):
            text = f"#include <{header}>\n"
            self.assert_finds("src/base/new.c", "system", text)
            self.assert_finds("cli/new.c", "system", text)
            self.assertEqual(self.rules({"src/base/system_linux.c": text}), set())
            self.assertEqual(self.rules({"tests/new.c": text}), set())
        for name in ("__APPLE__", "__linux__", "__GLIBC__"):
            for condition in (f"#ifdef {name}", f"#if defined({name}) && 1", f"#ifndef {name}"):
                for path in ("src/common/new.c", "cli/new.c", "tests/new.c", "examples/new.c"):
                    self.assert_finds(path, "system", condition + "\n#endif\n")
                self.assertEqual(self.rules({"src/base/system_new.c": condition + "\n#endif\n"}), set())
        self.assertEqual(self.rules({"src/base/pool.c": "#include <sched.h>\n"}), set())

    def test_own_header_first(self):
        text = '#include <stddef.h>\n#include "base/mem.h"\n'
        self.assertEqual(self.rules({"src/base/mem.c": text}), {("src/base/mem.c", "include")})

    def test_unique_names(self):
        self.assert_finds("src/engine/kv/mem.c", "file-name", '#include "base/mem.h"\n')

    def test_function_length(self):
        longest, longer = function("skv_f", 70), function("skv_f", 71)
        self.assertEqual(self.rules({"src/engine/kv/new.c": longest}), set())
        self.assert_finds("src/engine/kv/new.c", "function-length", longer)
        self.assertEqual(self.rules({"src/engine/kernels/ref/new.c": longer}), set())

    def test_function_length_agrees_without_ctags(self):
        text = (
            "typedef struct s {\n    int x;\n} s;\n\n/* A comment (with a call). */\n"
            + function("one", 9)
            + "\nstatic const int table[] = {\n    1,\n};\n\nstatic s *\ntwo(int a,\n    int b)\n"
            "{\n    if (a) {\n        b = 1;\n    }\n    return 0;\n}\n" + function("three", 80)
        )
        by_layout = [(name, n) for _, name, n in tidy.functions_by_layout(tidy.blank(text))]
        self.assertEqual(by_layout, [("one", 9), ("two", 9), ("three", 80)])
        if not tidy.shutil.which("ctags"):
            self.skipTest("ctags is not installed")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "x.c").write_text(text)
            by_ctags = [(name, n) for _, _, name, n in tidy.functions_by_ctags(folder, ["x.c"])]
        # ctags counts from the line of the name.
        self.assertEqual(by_ctags, [("one", 9), ("two", 8), ("three", 80)])

    def test_allow_list_only_shrinks(self):
        allow, long = "tools/tidy_allow.txt", function("skv_f", 80)
        entry = "src/engine/kv/new.c skv_f {}\n"
        self.assertEqual(
            self.rules({"src/engine/kv/new.c": long, allow: "# why\n" + entry.format(80)}), set()
        )
        self.assertEqual(
            self.rules({"src/engine/kv/new.c": long, allow: entry.format(79)}),
            {("src/engine/kv/new.c", "function-length")},
        )
        self.assertEqual(
            self.rules({"src/engine/kv/new.c": long, allow: entry.format(81)}), {(allow, "allow-list")}
        )
        self.assertEqual(
            self.rules({"src/engine/kv/new.c": function("skv_f", 9), allow: entry.format(80)}),
            {(allow, "allow-list")},
        )
        self.assertEqual(self.rules({allow: entry.format(80)}), {(allow, "allow-list")})
        self.assertEqual(self.rules({allow: "nonsense\n"}), {(allow, "allow-list")})

    def test_file_and_line_length(self):
        self.assertEqual(self.rules({"src/engine/kv/new.c": "\n" * 800}), set())
        self.assert_finds("src/engine/kv/new.c", "file-length", "\n" * 801)
        table = "/* Numbers, made by tools/numbers.py. */\n" + "\n" * 801
        self.assertEqual(self.rules({"src/engine/kv/new.c": table}), set())
        self.assertEqual(self.rules({"src/engine/kv/new.c": "/*" + "x" * 96 + "*/\n"}), set())
        self.assert_finds("src/engine/kv/new.c", "line-length", "/*" + "x" * 97 + "*/\n")

    def test_banned_calls(self):
        body = "void skv_f(void)\n{{\n    {}\n}}\n"
        everywhere = (
            "sprintf(a, b);",
            "strcpy(a, b);",
            "strcat (a, b);",
            "strtok(a, b);",
            "x = atoi(a);",
            "sscanf(a, b);",
            "rand();",
            "gets(a);",
            "alloca(9);",
        )
        in_src = (
            "malloc(1);",
            "calloc(1, 1);",
            "p = realloc(p, 1);",
            "free(p);",
            "exit(1);",
            "abort();",
            "printf(a);",
            "fprintf(stderr, a);",
            "fprintf( stdout, a);",
            "getenv(a);",
            "strdup(a);",
        )
        wait = "clock_gettime(CLOCK_REALTIME, &t);\n    pthread_cond_timedwait(c, m, &t);"
        self.assert_finds("src/engine/kv/new.c", "wait", body.format(wait))
        for call in everywhere + in_src:
            self.assert_finds("src/engine/kv/new.c", "banned-call", body.format(call))
        for call in everywhere:
            self.assert_finds("tests/test_new.c", "banned-call", body.format(call))
        for call in in_src:
            self.assertEqual(self.rules({"cli/new.c": body.format(call)}), set())
        for call in (
            "x.free(p);",
            "x->exit(1);",
            "skv_free(p);",
            "snprintf(a, b);",
            "fprintf(file, a);",
        ):
            self.assertEqual(self.rules({"src/engine/kv/new.c": body.format(call)}), set())

    def test_mutable_statics(self):
        for text in (
            "static int x;\n",
            "int skv_x;\n",
            "static int x = 1;\n",
            "static int x[3] = {1, 2};\n",
            "static const char *p;\n",
            "static const char *p[] = {0};\n",
            "static struct s x;\n",
            "static atomic_int x;\n",
            "static int (*call)(void);\n",
            "static skv_dot_fn *call;\n",
            "skv_dot_fn *skv_call;\n",
            "_Thread_local int x;\n",
            "int a, b;\n",
            "void skv_f(void)\n{\n    static int n;\n}\n",
            "void skv_f(void)\n{\n    static const char *p = 0;\n}\n",
            "int skv_f(void)\n{\n    return 0;\n}\nint skv_x;\n",
        ):
            self.assert_finds("src/engine/kv/new.c", "mutable-static", text)
        for text in (
            "extern const int skv_x;\n",
            "typedef int number;\n",
            "struct s;\n",
            "struct s {\n    int x;\n};\n",
            "enum { A = 1, B };\n",
            "typedef struct s {\n    int x;\n} s;\n",
            "int skv_f(int a);\n",
            "static inline int f(void)\n{\n    int x = 1;\n    return x;\n}\n",
            "static const struct s x = {.a = {1, 2}};\n",
            '_Static_assert(1 == 1, "x = 1;");\n',
            "#define X static int y;\n",
            "static char *const p = 0;\n",
            "typedef void f(int x);\n",
            "SKV_BEGIN\n\ntypedef struct skv_a skv_a;\n",
            "SKV_CHECKED skv_status skv_f(void (*fn)(int x), int *y);\n",
            "skv_dot_fn skv_dot_ref, skv_dot_avx2;\n",
            "void skv_one(void), skv_two(void);\n",
        ):
            self.assertEqual(self.rules({"src/engine/kv/new.c": text}), set(), text)

    def test_include_guards(self):
        for text in (
            "int skv_y(void);\n",
            "#pragma once\nint skv_y(void);\n",
            "#ifndef NEW_H\n#define NEW_H\n#endif\n",
            "#ifndef SKV_NEW_H\n#define SKV_OLD_H\n#endif\n",
            "#ifndef SKV_NEW_H\n#define SKV_NEW_H\n#endif\nint skv_y(void);\n",
            "#ifndef SKV_MODEL_H\n#define SKV_MODEL_H\n#endif\n",
        ):
            found = self.rules({"src/engine/kv/new.h": text})
            self.assertIn(("src/engine/kv/new.h", "include-guard"), found, text)

    def test_headers_compile_alone(self):
        guard = "#ifndef SKV_NEW_H\n#define SKV_NEW_H\n{}\n#endif\n"
        self.assert_finds(
            "src/engine/kv/new.h",
            "header-alone",
            guard.format("size_t skv_f(void);"),
            compile_headers=True,
        )
        self.assert_finds(
            "include/skv/new.h",
            "header-alone",
            guard.format("int skv_f(int class);"),
            compile_headers=True,
        )

    def test_shapes(self):
        struct = "struct skv_s {{\n    {}\n}};\n"
        for field in (
            "float *w;",
            "const float *w; /* owned */",
            "float *a, *b;",
            "const float *const *w;",
        ):
            self.assert_finds("src/engine/kv/new.c", "shape", struct.format(field))
        for field in (
            "float *w; /* [D] */",
            "/* [L, D] */\n    float *w;",
            "float w[3];",
            "void f(float *w);",
        ):
            self.assertEqual(self.rules({"src/engine/kv/new.c": struct.format(field)}), set(), field)
        self.assertEqual(self.rules({"src/engine/new.c": struct.format("float *w;")}), set())
        self.assertEqual(self.rules({"src/engine/kv/new.c": "void skv_f(float *w);\n"}), set())

    def test_unfinished(self):
        for word in ("TODO", "FIXME", "XXX", "\n<<<<<<< HEAD\n", "\n=======\n"):
            self.assert_finds("docs/page.md", "unfinished", f"A page. {word} More.\n")
        self.assertEqual(self.rules({"docs/page.md": "XXXX and TODOs\n"}), set())

    def test_every_source_is_built(self):
        built = [path for path in CLEAN if path.endswith(".c")]
        self.assertEqual(self.rules({}, build=built), set())
        self.assertEqual(self.rules({}, build=built[1:]), {(built[0], "not-built")})

    def linked(self, changes):
        """(path, line, rule, message) of what the objects of all sources show."""
        tree = {
            "include/skv/error.h": "#ifndef SKV_ERROR_H\n#define SKV_ERROR_H\n"
            "int skv_open(void);\nint skv_teach(void);\n#endif\n",
            "src/engine/open.c": '#include "skv/error.h"\nint skv_open(void)\n{\n    return 0;\n}\n',
            "src/learning/train/teach.c": '#include "skv/error.h"\nint skv_teach(void)\n{\n    return 0;\n}\n',
            "src/engine/model/model.c": '#include "model/model.h"\nvoid skv_model_free(void *p);\n'
            "void skv_model_free(void *p)\n{\n    skv_free(p);\n}\n",
            "src/common/chart.h": "#ifndef SKV_COMMON_CHART_H\n#define SKV_COMMON_CHART_H\n#endif\n",
    "src/base/buf.h": "#ifndef SKV_BASE_BUF_H\n#define SKV_BASE_BUF_H\n#endif\n",
    "cli/main.c": '#include "skv/error.h"\nint main(void)\n{\n    return skv_open();\n}\n',
            "tests/test_x.c": "void skv_model_free(void *p);\nint main(void)\n{\n"
            "    skv_model_free(0);\n    return 0;\n}\n",
            **changes,
        }
        built = [p for p, text in {**CLEAN, **tree}.items() if p.endswith(".c") and text]
        return self.violations(tree, build=built, objects=True)

    def assert_links(self, changes, path, rule, *words):
        found = self.linked(changes)
        self.assertEqual([(v[0], v[2]) for v in found], [(path, rule)], found)
        for word in words:
            self.assertIn(word, found[0][3])
        return found[0][1]

    def test_calls_follow_the_include_rules(self):
        self.assertEqual(self.linked({}), [])
        call = '#include "skv/error.h"\nstatic int use(void)\n{\n    return %s();\n}\n'
        call += "int (*const skv_call)(void) = use;\n"
        used = "extern int (*const skv_call)(void);\nint main(void)\n{\n    return skv_call();\n}\n"
        for path, name, folder in (
            ("src/learning/train/new.c", "skv_open", "src/engine"),
            ("src/learning/data/new.c", "skv_teach", "src/learning/train"),
            ("src/base/new.c", "skv_open", "src/engine"),
            ("src/engine/new.c", "skv_teach", "src/learning/train"),
        ):
            changes = {path: call % name, "tests/test_y.c": used}
            line = self.assert_links(changes, path, "link", name, folder)
            self.assertEqual(line, 4)
        changes = {"src/learning/train/calibrate.c": call % "skv_open", "tests/test_y.c": used}
        self.assertEqual(self.linked(changes), [])  # the one door
        text = "void skv_free(void *p);\nint main(void)\n{\n    skv_free(0);\n    return 0;\n}\n"
        self.assert_links({"cli/main.c": text}, "cli/main.c", "link", "skv_free", "src/base")

    def test_exports_have_the_prefix(self):
        text = "int other(void);\nint other(void)\n{\n    return 0;\n}\n"
        use = "int other(void);\nint main(void)\n{\n    return other();\n}\n"
        changes = {"src/engine/kv/new.c": text, "tests/test_y.c": use}
        self.assert_links(changes, "src/engine/kv/new.c", "prefix", "other")

    def test_exports_are_used(self):
        text = "int skv_f(void);\nint skv_f(void)\n{\n    return 0;\n}\n"
        for path in ("src/engine/kv/new.c", "src/serving/http/new.c"):
            self.assert_links({path: text}, path, "unused-export", "skv_f")
            allow = {"tools/tidy_allow.txt": f"{path} skv_f exported\n"}
            self.assertEqual(self.linked({path: text, **allow}), [])
            # Fuzz targets, which the build may leave out, use it too.
            fuzz = "#ifndef SKV_FUZZ_H\n#define SKV_FUZZ_H\n#define FUZZED skv_f()\n#endif\n"
            self.assertEqual(self.linked({path: text, "fuzz/fuzz.h": fuzz}), [])
        allow = {"tools/tidy_allow.txt": "src/engine/kv/new.c skv_f exported\n"}
        self.assert_links(allow, "tools/tidy_allow.txt", "allow-list", "skv_f")

    def test_knots_only_shrink(self):
        text = "int skv_{0}(void);\nint skv_{1}(void);\nint skv_{0}(void)\n{{\n    return skv_{1}();\n}}\n"
        a, b = "src/engine/kv/a.c", "src/engine/kv/b.c"
        circle = {a: text.format("a", "b"), b: text.format("b", "a")}
        allow = "tools/tidy_allow.txt"
        self.assert_links(circle, a, "knot", "2 objects", "a.c, b.c")
        self.assertEqual(self.linked({**circle, allow: "src/engine/kv knot 2\n"}), [])
        self.assert_links({**circle, allow: "src/engine/kv knot 3\n"}, allow, "allow-list", "lower it")
        self.assert_links({allow: "src/engine/kv knot 2\n"}, allow, "allow-list", "remove it")
        elsewhere = {a: circle[a], "src/engine/model/b.c": circle[b]}
        self.assertNotIn("knot", [v[2] for v in self.linked(elsewhere)])

    def test_words_only_fall(self):
        allow = "tools/tidy_allow.txt"
        plain = "/* A, b, c, d, e, f, g. Returns what is not code. */\nint what_who(char behind);\n"
        path, text = "src/language/new.c", plain + "static const char x[] = \"who /* who */\";\n"
        rate = 1000 / 12

        def lines(*rows):
            return {path: text, allow: "# why\n" + "".join(row + "\n" for row in rows)}

        self.assertEqual(self.rules({path: text}), {("src/language", "words")})
        self.assertEqual(self.rules(lines(f"src/language words {rate:.1f}")), set())
        self.assertEqual(self.rules(lines(f"src/language words {rate - 0.1:.1f}")), {("src/language", "words")})
        self.assertEqual(self.rules(lines(f"src/language words {rate + 0.4:.1f}")), set())
        self.assertEqual(self.rules(lines(f"src/language words {rate + 0.7:.1f}")), {(allow, "allow-list")})
        self.assertEqual(self.rules({allow: "src/base words 0.1\n"}), {(allow, "allow-list")})
        self.assertEqual(self.rules({allow: "src words 1.0\n"}), {(allow, "allow-list")})
        for word in ("Whom", "nobody's", "whosever"):
            found = self.rules({"src/base/new.c": f"/* One {word} line. */\n"})
            self.assertEqual(bool(found), word != "whosever", word)
        self.assert_finds_room("include", "include/skv/new.h", "/* See behind. */\n")
        self.assertEqual(self.rules({"tests/test_new.c": "/* What somebody does. */\n"}), set())

    def assert_finds_room(self, room, path, comment):
        guard = "#ifndef SKV_NEW_H\n#define SKV_NEW_H\nint skv_f(void);\n#endif\n"
        self.assertEqual(self.rules({path: comment + guard}), {(room, "words")})

    def test_instructions(self):
        """What objdump tells of a library, with one fault at a time."""
        outer, inner = "kernels.c.o", "rows_avx512.c.o"

        def library(called="skv_put", outside="mov %rax,%rbx", inside="vaddps %zmm1,%zmm2,%zmm3"):
            return (
                f"In archive libskv.a:\n\n{outer}:     file format elf64-x86-64\n\n"
                f"0000000000000000 <skv_put>:\n   0:\t{outside}\n   4:\tcall   9 <skv_put+0x9>\n"
                f"\t\t\t5: R_X86_64_PLT32\t{called}-0x4\n"
                f"{inner}:     file format elf64-x86-64\n\n"
                f"0000000000000000 <skv_fast>:\n   0:\t{inside}\n"
                "   6:\tcall   b <skv_fast+0xb>\n\t\t\t7: R_X86_64_PLT32\tskv_put-0x4\n"
            )

        def faults(**changes):
            return list(tidy.instruction_faults(library(**changes)))

        self.assertEqual(faults(), [])
        self.assertEqual(
            faults(called="skv_fast"),
            [(outer, "skv_put calls skv_fast, which may use avx2, avx512")],
        )
        for text, needed in (
            ("vmovaps %xmm1,%xmm2", "avx2"),
            ("vaddps %ymm1,%ymm2,%ymm3", "avx2"),
            ("vmovdqu64 %xmm17,(%rdi)", "avx512"),
            ("kmovw %eax,%k1", "avx512"),
            ("vaddps %ymm1,%ymm2,%ymm3{%k1}", "avx512"),
            ("{vex} vpdpbusd %ymm1,%ymm2,%ymm3", "avxvnni"),
            ("vpdpbusd %zmm1,%zmm2,%zmm3", "avx512vnni"),
            ("vdpbf16ps %zmm1,%zmm2,%zmm3", "avx512bf16"),
            ("tdpbssd %tmm5,%tmm4,%tmm0", "amx"),
        ):
            self.assertEqual(
                faults(outside=text), [(outer, f"skv_put has {text}, which needs {needed}")]
            )
            wrong = [(inner, f"skv_fast has {text}, which needs {needed}")]
            self.assertEqual(faults(inside=text), wrong if needed not in ("avx2", "avx512") else [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
