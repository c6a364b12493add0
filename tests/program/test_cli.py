#!/usr/bin/env python3
"""The program from outside: exit statuses, one-line errors, JSON, and what the commands compute.

Models are those of tests/data/models; the few tests that need text use ../shared/assets and say so
where it is absent.
"""

import getpass
import json
import math
import os
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import sanitizer  # noqa: E402
from waiting import wait_until  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("SKV_BUILD", ROOT / "build")).resolve() / "swiftkv"
MODELS = ROOT / "tests/data/models"
ASSETS = ROOT / "../shared/assets"
PLAIN = MODELS / "llama3-v4"
SWIFTKV = MODELS / "qwen2-swiftkv-g2"  # holds its teacher too
GGUF = MODELS / "llama-gguf/model.gguf"
STORIES = ASSETS / "models/tinystories-656k"
STORIES_GGUF = ASSETS / "models/stories260k/stories260k-f32.gguf"
PRESET = "smollm2-135m"


def run(*words, data=None, **more):
    command = [PROGRAM, *map(str, words)]
    return subprocess.run(command, input=data, capture_output=True, text=True, timeout=1200, **more)


def golden(model):
    return json.loads((model / "golden.json").read_text())["cases"]


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def enterContext(self, context):  # unittest has it from Python 3.11 on
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def write(self, name, content):
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def refuses(self, status, words, *parts):
        """The command fails with this status and one line that has these parts."""
        result = run(*words)
        self.assertEqual(result.returncode, status, (words, result.stderr, result.stdout[:200]))
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, (words, result.stderr))
        self.assertEqual(result.stdout, "", words)
        for part in parts:
            self.assertIn(str(part), lines[0], words)

    def json_of(self, *words):
        result = run(*words)
        said = re.sub(r"(?m)^swiftkv: [a-z ]+: .* left\n", "", result.stderr)  # a line a minute
        self.assertEqual((result.returncode, said), (0, ""), words)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        return lines[0] if len(lines) == 1 else lines


    def on_terminal(self, *words):
        """What the command writes to standard error where that is a terminal."""
        main, side = pty.openpty()
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL, stderr=side)
        os.close(side)
        text = b""
        try:
            while chunk := os.read(main, 4096):
                text += chunk
        except OSError:  # the other side is closed
            pass
        os.close(main)
        self.assertEqual(process.wait(), 0, text)
        return text.decode()


class MemoryTest(CliTest):
    """What `info` and `doctor` say of memory: the library's own plan, which tests/engine/test_engine.c holds against
    engines to the byte."""

    def plan(self, model, *words):
        return self.json_of("info", model, *words, "--json")["memory"]

    def resident(self, *words):
        """The most bytes that a command held."""
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, words)
        return used.ru_maxrss * 1024

    @unittest.skipIf(sanitizer.is_used(), "resident sizes mean little there")
    def test_a_process_takes_what_was_planned(self):
        model = f"preset:{PRESET}"
        words = ("--threads", 1, "--context", 512)
        memory = self.plan(model, *words)
        plan = memory["plans"][memory["own"]]
        took = self.resident("bench", "--preset", PRESET, "--threads", 1, "--prompt", 508, "--gen", 4,
                             "--repeat", 1)
        took -= self.resident("info", model, *words)
        self.assertLess(took, 1.03 * plan["bytes"])
        self.assertGreater(took, 0.97 * (plan["weight_bytes"] + plan["kv_bytes"]))  # of the workspace it may touch a part

    def test_plans(self):
        for model in (PLAIN, SWIFTKV, GGUF, MODELS / "gptq", ROOT / "models/mini/kvpred", "preset:llama-3.1-8b"):
            memory = self.plan(model, "--available", "1024Gi")
            rows = memory["plans"]
            self.assertEqual(memory["available"], 1 << 40)
            self.assertEqual(memory["chosen"], memory["own"])
            self.assertLessEqual({"bf16", "int8", "int4"}, {row["weights"] for row in rows})
            for row in rows:
                self.assertEqual(row["bytes"], row["weight_bytes"] + row["kv_bytes"] + row["workspace_bytes"])
                self.assertTrue(row["fits"])
            sizes = {row["weights"]: row["weight_bytes"] for row in rows}
            self.assertLess(sizes["int8"], sizes["bf16"])
            self.assertLess(sizes["bf16"], sizes["f32"])
        self.assertEqual({row["kv"] for row in self.plan(PLAIN, "--kv", "fp8")["plans"]}, {"fp8"})
        self.assertIn("teacher_bytes", self.plan(SWIFTKV))
        self.assertNotIn("teacher_bytes", self.plan(PLAIN))
        self.assertNotIn("states_bytes", self.plan(PLAIN))
        hybrid = MODELS / "qwen3-5"  # 8 answers, and two states for each that the prefix cache keeps
        state = self.json_of("info", hybrid, "--json")["state_bytes"]
        self.assertGreaterEqual(self.plan(hybrid)["states_bytes"], 24 * state)
        self.assertIn("serve holds states of 8 answers, and 16 for its prefix cache", run("info", hybrid).stdout)

    def test_what_to_choose(self):
        model = "preset:llama-3.1-8b"
        for available, chosen, said in (("20Gi", ("bf16", "bf16"), "no option is needed"),
                                        ("12Gi", ("int8", "bf16"), "choose --weights int8: "),
                                        ("6Gi", ("int4", "bf16"), "choose --weights int4: "),
                                        ("4500Mi", None, "8192 tokens do not fit; choose --weights int4 --kv int8 --ctx "),
                                        ("1Gi", None, "nothing fits: the least, --weights int4")):
            memory = self.plan(model, "--available", available)
            row = memory["plans"][memory["chosen"]] if chosen else None
            self.assertEqual(row and (row["weights"], row["kv"]), chosen, available)
            self.assertIn(said, run("info", model, "--available", available).stdout)
        longest = self.plan(model, "--available", "4500Mi")["plans"][-1]["context_max"]
        for context, fits in ((longest, True), (longest + 64, False)):
            last = self.plan(model, "--available", "4500Mi", "--context", context)["plans"][-1]
            self.assertEqual(last["fits"], fits)

    def test_doctor(self):
        said = run("doctor", "--available", "12Gi").stdout
        self.assertRegex(said, r"preset:llama-3.2-1b +as it is, contexts to 131072 tokens")
        self.assertRegex(said, r"preset:llama-3.1-8b +--weights int8, contexts to \d+ tokens")
        self.assertRegex(said, r"preset:qwen3-30b-a3b +does not fit: \d+ MiB with --weights int4")
        table = run("info", PLAIN, "--available", "1Gi").stdout.partition("\nMemory in MiB")[2]
        self.assertIn(table, run("doctor", PLAIN, "--available", "1Gi").stdout)
        self.refuses(1, ("doctor", self.folder / "gone"), "gone")

    def test_devices(self):
        """What is listed can be asked for, and nothing else, by any command that runs models."""
        devices = self.json_of("devices", "--json")
        self.assertEqual([d["name"] for d in devices], ["cpu", "cuda"])
        cpu, cuda = devices
        self.assertTrue(cpu["available"] and cpu["exact"] and not cpu["own_memory"])
        self.assertTrue(0 < cpu["memory_available"] <= cpu["memory_bytes"])
        lines = run("devices").stdout.splitlines()
        self.assertEqual(lines[0], f"cpu      {cpu['found']}")
        self.assertRegex(lines[1], r"^ +[\d.]+ GB of memory, the host's, [\d.]+ GB available$")
        said = cuda["found" if cuda["available"] else "reason"]
        self.assertEqual(lines[2], f"cuda     {said}")
        self.assertFalse(cuda["exact"])
        self.assertIn(f"\ndevices        cuda: {said}\n", run("doctor").stdout)
        if not cuda["available"]:
            self.assertRegex(said, "^this program was built without kernels for GPUs |^lib[a-zA-Z.0-9]+: not found")
        ids = self.write("ids.json", [1, 2, 3])
        words = ("generate", PLAIN, "--ids-file", ids, "-n", 4)
        self.assertEqual(run(*words, "--device", "cpu").stdout, run(*words).stdout)
        reasons = {"tape": "unknown, expected cpu, cuda"}
        if not cuda["available"]:
            reasons["cuda"] = said
        for command in (words, ("info", PLAIN), ("doctor", PLAIN), ("serve", PLAIN, "--port", 0)):
            for device, why in reasons.items():
                refused = run(*command, "--device", device)
                self.assertEqual((refused.returncode, refused.stdout, refused.stderr),
                                 (1, "", f"swiftkv: device {device}: {why}\n"))
        self.refuses(2, ("tokenize", PLAIN, "-p", "a", "--device", "cpu"), "--device")
        self.assertEqual(run(*words, "--gpus", 1).stdout, run(*words).stdout)
        for device in ((), ("--device", "cpu")):
            self.refuses(2, (*words, "--gpus", 2, *device), "--gpus 2: needs a device that is not the processor")

    def test_report(self):
        """In a folder and by a user whose names would be seen; nothing that it tries fails, and levels agree."""
        program = shutil.copy(PROGRAM, self.folder / "elsewhere")
        names = {"USER": "marlowe", "LOGNAME": "marlowe", "HOSTNAME": "bigsleep", "HOME": str(self.folder / "sternwood")}
        result = subprocess.run([program, "doctor", "--report", "--quick"], cwd=self.folder, text=True,
                                env={**os.environ, **names}, capture_output=True, timeout=1200)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        said = result.stdout
        for hidden in (*names.values(), str(self.folder), str(ROOT), socket.gethostname(), getpass.getuser(), "elsewhere"):
            self.assertNotIn(hidden, said)
        self.assertNotRegex(said, r"(?m)(^|[\s'\"=(])[~.]?/\w")  # a path
        self.assertNotRegex(said, "FAILS|WRONG|DIFFERS")
        heads = re.findall(r"(?m)^(\w[\w -]{,13}?) {2,}", said.partition("\n\n")[0])
        self.assertEqual([h for h in heads if h not in ("load",)],
                         ["swiftkv", "system", "processor", "processors", "memory", "ways", "wake-ups", "timed waits",
                          "sockets", "files", "random bytes", "mapped pages", "stacks", "instructions", "kernels", "models"])
        name = os.uname()
        self.assertIn(f"\nsystem         {name.sysname} {name.release} {name.machine}\n", said)
        self.assertRegex(said, r"\nways +(linux|portable)\n")
        best = re.search(r"\nkernels +(\w+) is the best here\n", said)[1]
        self.assertRegex(run("doctor").stdout, rf"\nkernels +{best} is used, of ")
        exact = re.findall(r" (\w+): products of f32 exact, bf16 exact, int8 exact\n", said)
        agree = re.findall(r" (\w+) agrees with ref, f32 (\S+), bf16 \S+, int8 \S+, int4 \S+\n", said)
        self.assertEqual([*exact], ["ref", *(level for level, _ in agree)])
        self.assertIn(best, exact)
        self.assertTrue(all(0 < float(f32) < 1e-4 for _, f32 in agree), agree)
        self.assertRegex(said, r"(?m)^preset:mini: int8 weights")
        self.assertRegex(said, r"(?m)^ +512 +32 +1 +[\d.]+ +[\d.]+")
        self.refuses(2, ("doctor", PLAIN, "--report"), "doctor: --report is of the machine")
        self.refuses(2, ("doctor", "--quick"), "doctor: --quick needs --report")

    def test_a_refusal_says_what_fits(self):
        words = ("serve", PLAIN, "--port", 0, "--models-memory", 1, "--threads", 1, "--chunk", 16)
        refused = run(*words, "--kv-tokens", 65536)
        self.assertEqual(refused.returncode, 1)
        found = re.search(r"1 MiB are available; what fits: --kv-tokens (\d+)", refused.stderr)
        self.assertTrue(found, refused.stderr)
        most = int(found[1])
        self.assertEqual(run(*words, "--kv-tokens", most + 1).returncode, 1)
        process = subprocess.Popen([PROGRAM, *map(str, words), "--kv-tokens", str(most)], stderr=subprocess.PIPE, text=True)
        lines = self.lines_to(process, "ready on")
        self.assertIn("ready on", lines[-1])
        process.terminate()
        process.communicate()
        self.refuses(1, ("generate", "preset:llama-3.1-405b", "--ids-file", self.write("ids.json", [1])),
                     "MiB are available; no smaller weights fit")

    def lines_to(self, process, words):
        lines = []
        for line in process.stderr:
            lines.append(line)
            if words in line:
                break
        return lines


class LengthTest(CliTest):
    """A context beyond what the model was made for is told with both numbers."""

    def notes(self, *words, data=None):
        result = run(*words, data=data)
        self.assertEqual(result.returncode, 0, result.stderr)
        return [line for line in result.stderr.splitlines() if "may be noise" in line]

    def test_ctx_beyond_the_model(self):
        context = self.json_of("info", PLAIN, "--json")["context"]
        ids = self.write("ids.json", [1] * 8)
        for words in (("generate", PLAIN, "--ids-file", ids, "-n", 1), ("bench", PLAIN, "--prompt", 8, "--gen", 1)):
            self.assertEqual(self.notes(*words, "--ctx", context), [])
            note, = self.notes(*words, "--ctx", context + 1)
            self.assertIn(f"--ctx {context + 1} tokens", note)
            self.assertIn(f"at most {context};", note)
        note, = self.notes("score", PLAIN, "--ids-file", self.write("many.json", [1] * (context + 9)), "--ctx", context + 9)
        self.assertIn(f"windows of {context + 9} tokens", note)

    def test_scaling_reaches_further(self):
        config = json.loads((MODELS / "qwen3-yarn/config.json").read_text())
        scaling = config.get("rope_scaling") or config["rope_parameters"]
        info = self.json_of("info", MODELS / "qwen3-yarn", "--json")
        reach = int(scaling["factor"] * scaling["original_max_position_embeddings"])
        self.assertEqual(info["trained_context"], max(reach, info["context"]))

    def test_the_bundled_model(self):
        mini = ROOT / "models/mini/base"
        info = self.json_of("info", mini, "--json")
        self.assertEqual((info["context"], info["trained_context"]), (8192, 2048))
        self.assertIn("8192, trained to 2048", run("info", mini).stdout)
        note, = self.notes("chat", mini, "-n", 1, data="Hello\n")
        self.assertIn("a context of 8192 tokens", note)
        for n, told in ((2048, []), (2049, ["a prompt of 2049 tokens"])):
            notes = self.notes("generate", mini, "--ids-file", self.write("ids.json", [5] * n), "-n", 1)
            self.assertEqual([part for note in notes for part in told if part in note], told)
            self.assertEqual(len(notes), len(told))


class ModelFileTest(CliTest):
    def test_a_folder_with_a_gguf_file(self):
        os.symlink(GGUF, self.folder / "one.gguf")
        result = run("info", self.folder, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, f"swiftkv: note: {self.folder}: opening {self.folder}/one.gguf\n")
        found, named = json.loads(result.stdout), self.json_of("info", GGUF, "--json")
        self.assertEqual({**found, "memory": None}, {**named, "memory": None})  # which grows and shrinks
        ids = self.write("ids.json", [1, 2, 3])
        self.assertEqual(run("generate", self.folder, "--ids-file", ids, "-n", 4).stdout,
                         run("generate", GGUF, "--ids-file", ids, "-n", 4).stdout)
        os.symlink(GGUF, self.folder / "two.gguf")
        self.refuses(1, ("info", self.folder), "2 GGUF files: name one of them, such as", ".gguf")

    def test_how_it_is_stored(self):
        """Types of tensors, and the chat template with the form of its calls."""
        info = self.json_of("info", GGUF, "--json")
        self.assertRegex(info["stored"], r"^F32 \(\d+\)")
        self.assertIn(f"weights        {info['stored']} tensors\n", run("info", GGUF).stdout)
        coded = run("info", MODELS / "gptq").stdout
        self.assertRegex(coded, r"weights        GPTQ int4 in groups of \d+[a-z ]*: held as published\nand            ")
        self.assertEqual(self.json_of("info", ROOT / "models/mini/base", "--json")["tool_format"], "none")
        self.assertIn("chat template  yes, without marks of tool calls", run("info", ROOT / "models/mini/base").stdout)
        model = self.folder / "model"
        model.mkdir()
        for path in (ROOT / "models/mini/base").iterdir():
            os.symlink(path, model / path.name)
        (model / "tokenizer_config.json").unlink()
        template = ("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name"
                    " }}\", \"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}{% endfor %}")
        (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
        self.assertEqual(self.json_of("info", model, "--json")["tool_format"], "hermes")
        self.assertIn("chat template  yes, tool calls as hermes", run("info", model).stdout)
        self.assertFalse(self.json_of("info", "preset:llama-3.2-1b", "--json")["chat_template"])


class CompareTest(CliTest):
    KV6 = ROOT / "models/mini/kv6"

    def test_length_by_the_context(self):
        """Without --lengths documents are as long as the model's context allows."""
        result = run("compare", self.KV6, "--ctx", 512, "--task", "needle", "--count", 1, "-n", 8)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("chosen: --lengths 440, for a context of 512\n", result.stdout)
        questions = self.json_of("compare", self.KV6, "--task", "needle", "--count", 1, "-n", 8, "--json")
        self.assertLess(1500, questions["prompt_tokens"] if isinstance(questions, dict) else questions[0]["prompt_tokens"])

    def test_short_times_are_not_compared(self):
        said = run("compare", self.KV6, "-p", "one", "-n", 4).stdout
        self.assertIn("The times are too short to compare", said)
        self.assertNotIn("times as fast", said)


class CommandLineTest(CliTest):
    def test_folders_without_a_model(self):
        self.refuses(1, ("generate", MODELS, "-p", "a"), MODELS, "There is", MODELS / "awq")
        run_folder = self.folder / "run"
        (run_folder / "checkpoint").mkdir(parents=True)
        (run_folder / "log.jsonl").touch()
        self.refuses(1, ("compare", run_folder), run_folder, "--resume")
        self.refuses(1, ("info", self.folder), "config.json")

    def test_names_what_was_typed(self):
        """A length, a number of layers, a task: the option is named, and what it could be."""
        mini = ROOT / "models/mini"
        self.refuses(1, ("compare", mini / "kv6", "--ctx", "128", "--lengths", "400", "--task", "needle", "--count", "1"),
                     "--lengths 400: the prompt has ", "tokens, but the context is 128")
        self.refuses(1, ("compare", mini / "kv6", "--task", "nedle"), '"nedle" is none of', "needle, ", "stage:all")
        self.refuses(1, ("info", mini / "base", "--kv-layers", "13"), "kv-layers 13, expected 1 to 12")

    def test_wrong_command_lines(self):
        m = PLAIN
        for words, parts in [
            (("frobnicate",), ("frobnicate", "generate", "bench")),
            (("serv", m), ("serv",)),
            (("serve",), ("MODEL",)),
            (("serve", m, "--port", "70000"), ("--port", "70000")),
            (("serve", m, "--step-ms", "0"), ("--step-ms",)),
            (("serve", m, "--json"), ("--json",)),
            (("generate",), ("MODEL",)),
            (("generate", m), ("-p", "--file", "--ids-file")),
            (("generate", m, "-p", "a", "--file", "b"), ("-p", "--file")),
            (("generate", m, "--file", "a", "--ids-file", "b"), ("--file", "--ids-file")),
            (("generate", m, "b", "-p", "x"), ("b", "too many")),
            (("generate", m, "-p"), ("-p", "TEXT")),
            (("generate", m, "--colour"), ("--colour",)),
            (("generate", m, "-p", "x", "-n", "0"), ("-n: 0 is not between 1 and",)),
            (("generate", m, "-p", "x", "-n", "12x"), ("-n", "12x")),
            (("generate", m, "-p", "x", "-n", "-3"), ("-n", "-3")),
            (("generate", m, "-p", "x", "-n", "99999999999999999999999"), ("-n",)),
            (("generate", m, "-p", "x", "--temp", "hot"), ("--temp", "hot")),
            (("generate", m, "-p", "x", "--temp", "nan"), ("--temp", "nan")),
            (("generate", m, "-p", "x", "--temp", "-1"), ("--temp: -1 is not between 0 and 100",)),
            (("generate", m, "-p", "x", "--presence-penalty", "3"), ("--presence-penalty: 3 is not between -2 and 2",)),
            (("genrate",), ("genrate", "did you mean generate?")),
            (("generate", m, "-p", "x", "--temperature", "1"), ("--temperature", "did you mean --temp?")),
            (("generate", m, "-p", "x", "--max-tokens", "1"), ("--max-tokens", "did you mean -n?")),
            (("generate", m, "-p", "x", "--top_p=1"), ("--top_p", "did you mean --top-p?")),
            (("generate", m, "-p", "x", "--zzz"), ("--zzz' (swiftkv help generate)",)),
            (("generate", m, "-p", "x", "--top-p", "-0.5"), ("--top-p",)),
            (("generate", m, "-p", "x", "--top-p", "1.1"), ("--top-p", "1.1")),
            (("generate", m, "-p", "x", "--min-p", "1"), ("--min-p",)),
            (("generate", m, "-p", "x", "--repeat-penalty", "0"), ("--repeat-penalty",)),
            (("generate", m, "-p", "x", "--seed", "-1"), ("--seed", "-1")),
            (("generate", m, "-p", "x", "--stop", ""), ("--stop",)),
            (("generate", m, "-p", "x", "--weights", "int5"), ("--weights", "int4")),
            (("generate", m, "-p", "x", "--kv", "fp4"), ("--kv", "fp4")),
            (("generate", m, "-p", "x", "--prefill", "guess"), ("--prefill", "guess")),
            (("generate", m, "-p", "x", "--prune", "random:2"), ("--prune", "random:2")),
            (("generate", m, "-p", "x", "--cpu", "z80"), ("--cpu", "z80")),
            (("generate", m, "-p", "x", "--snapkv", "64,64,5"), ("--snapkv", "w 64")),
            (("generate", m, "-p", "x", "--threads", "0"), ("--threads",)),
            (("generate", m, "-p", "x", "--json=yes"), ("--json", "yes")),
            (("generate", m, "-p", "x", "--regex", "a", "--json-object"), ("--json-object", "--regex")),
            (("score", m), ("--ids-file",)),
            (("tokenize", m, "--decode", "-p", "x"), ("--decode", "--ids-file")),
            (("tokenize", m, "--ids-file", "x"), ("--decode",)),
            (("render", m), ("--messages",)),
            (("similarity", m), ("--text",)),
            (("transform", m), ("OUT",)),
            (("transform", m, "out", "--kv-layers", "2", "--init", "ridge"), ("--text",)),
            (("transform", m, "out", "--kv-layers", "2", "--text", "t"), ("--init ridge",)),
            (("transform", m, "out", "--kv-layers", "2", "--init", "best"), ("copy, ridge",)),
            (("info", m, "--group", "2"), ("--group",)),
            (("bench",), ("MODEL", "--preset", "--peak")),
            (("bench", m, "--preset", PRESET), ("--preset",)),
            (("bench", "--peak", "--compare"), ("--compare",)),
            (("bench", "--preset", PRESET, "--prompt", "1,,2"), ("--prompt", "1,,2")),
            (("bench", "--preset", PRESET, "--group", "2"), ("--group",)),
            (("bench", m, "--kv-layers", "2"), ("--kv-layers",)),
            (("bench", m, "--compare"), ("--compare", m)),
            (("help", "frobnicate"), ("frobnicate",)),
        ]:
            with self.subTest(words=words):
                self.refuses(2, words, *parts)

    def test_control_characters_stay_off_the_terminal(self):
        self.refuses(2, ("generate", PLAIN, "--\x1b[31m\nred"), "--?[31m?red")

    def test_help_and_version(self):
        self.assertRegex(run("version").stdout, r"^swiftkv \d+\.\d+\.\d+\n$")
        self.assertEqual(run("--version").stdout, run("version").stdout)
        self.assertEqual(run().returncode, 2)
        rows = [line.split() for line in run("help", "--list").stdout.splitlines()]
        commands = [row[0] for row in rows if len(row) == 1]
        for command in commands:
            text = run("help", command).stdout
            self.assertEqual(text, run(command, "--help").stdout if command != "help" else text)
            self.assertIn(command, run("help").stdout)
            for row in rows:
                if row[0] == command and len(row) > 1:
                    self.assertIn(f"  {row[1]}", text)

    def test_value_after_equals_sign(self):
        ids = self.write("ids.json", golden(PLAIN)[1]["ids"])
        words = ("generate", PLAIN, f"--ids-file={ids}", "--weights=f32", "-n", 3, "--json")
        self.assertEqual(self.json_of(*words)["completion_tokens"], 3)

    @unittest.skipUnless(Path("/dev/full").exists(), "no /dev/full")
    def test_full_disk(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, "info", PLAIN], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"standard output", result.stderr)


class BadInputTest(CliTest):
    def test_ids(self):
        for content, parts in [
            ("[1, 2", ("line 1",)),
            ("{}", ("array",)),
            ("[]", ("0 tokens",)),
            ("[1, 2.0]", ("[1]", "integer")),
            ("[1, true]", ("[1]", "integer")),
            ('["1"]', ("[0]", "integer")),
            ("[1, -1]", ("[1]", "-1")),
            ("[1, 99, 100000]", ("[2]", "100000")),
            ("[4294967297]", ("4294967297",)),
            ("[123456789012345678901234567890]", ("line 1",)),
            (b"\xff\xfe", ("line 1",)),
            ("[" * 100000, ("line 1",)),
        ]:
            path = self.write("ids.json", content)
            with self.subTest(content=content[:40]):
                self.refuses(1, ("generate", PLAIN, "--ids-file", path), path, *parts)
                self.refuses(1, ("score", PLAIN, "--ids-file", path), path, *parts)

    def test_missing_files(self):
        gone = self.folder / "gone"
        self.refuses(1, ("info", gone), gone)
        self.refuses(1, ("generate", gone, "-p", "x"), gone)
        self.refuses(1, ("tokenize", gone, "-p", "x"), gone)
        self.refuses(1, ("score", PLAIN, "--ids-file", gone), gone)
        self.refuses(1, ("bench", gone), gone)
        self.refuses(1, ("info", "preset:gone"), "gone")
        self.refuses(1, ("bench", "--preset", "gone"), "gone")

    def test_a_folder_without_a_tokenizer(self):
        for command in ("generate", "score"):
            self.refuses(1, (command, PLAIN, "-p", "x"), PLAIN, "tokenizer")
        self.refuses(1, ("tokenize", PLAIN, "-p", "x"), PLAIN, "tokenizer")
        self.refuses(1, ("generate", "preset:" + PRESET, "-p", "x"), "tokenizer", "--ids-file")

    def test_prompts_beyond_the_context(self):
        context = self.json_of("info", PLAIN, "--json")["context"]
        path = self.write("ids.json", [5] * (context + 1))
        words = ("generate", PLAIN, "--ids-file", path)
        self.refuses(1, words, context, context + 1)
        self.refuses(1, (*words, "--ctx", 10), 10, context + 1)
        path = self.write("ids.json", [5] * 8)
        self.refuses(1, (*words, "--ctx", 10, "-n", 3), "8 + 3", 10)

    def test_broken_models(self):
        whole = (PLAIN / "model.safetensors").read_bytes()
        config = json.loads((PLAIN / "config.json").read_text())
        ids = self.write("ids.json", [1, 2, 3])
        n_header = struct.unpack("<Q", whole[:8])[0]
        cases = {
            "empty": (config, b""),
            "short": (config, whole[:5]),
            "half": (config, whole[: len(whole) // 2]),
            "header beyond the end": (config, struct.pack("<Q", 1 << 62) + whole[8:]),
            "header is no JSON": (config, whole[:8] + b"x" * n_header + whole[8 + n_header :]),
            "no configuration": ("{", whole),
            "no layers": (config | {"num_hidden_layers": 0}, whole),
            "more layers": (config | {"num_hidden_layers": 99}, whole),
            "many layers": (config | {"num_hidden_layers": 10**15}, whole),
            "another width": (config | {"hidden_size": config["hidden_size"] * 2}, whole),
            "negative width": (config | {"hidden_size": -64}, whole),
            "another model": (config | {"model_type": "gpt_neox", "architectures": ["X"]}, whole),
        }
        for name, (text, weights) in cases.items():
            model = self.folder / name.replace(" ", "-")
            model.mkdir()
            (model / "config.json").write_text(text if isinstance(text, str) else json.dumps(text))
            (model / "model.safetensors").write_bytes(weights)
            with self.subTest(name):
                self.refuses(1, ("generate", model, "--ids-file", ids))

    def test_broken_gguf(self):
        whole = (MODELS / "llama-gguf/model.gguf").read_bytes()
        ids = self.write("ids.json", [1, 2, 3])
        huge = struct.pack("<Q", 1 << 60)
        for name, content in {
            "magic": b"GGUX" + whole[4:],
            "version": whole[:4] + b"\x09" + whole[5:],
            "tensors": whole[:8] + huge + whole[16:],
            "keys": whole[:16] + huge + whole[24:],
            "cut": whole[:-100],
            "cut in the header": whole[:300],
            "empty": b"",
        }.items():
            path = self.write("model.gguf", content)
            with self.subTest(name):
                self.refuses(1, ("generate", path, "--ids-file", ids), path)

    def test_memory_that_does_not_suffice(self):
        ids = self.write("ids.json", [1, 2, 3])
        words = ("generate", "preset:llama-3.1-405b", "--ids-file", ids, "-n", 1)
        self.refuses(1, words, "memory", "MiB", "available")


class InfoTest(CliTest):
    def test_keys(self):
        config = json.loads((SWIFTKV / "config.json").read_text())
        info = self.json_of("info", SWIFTKV, "--json")
        self.assertEqual(info["layers"], config["num_hidden_layers"])
        self.assertEqual(info["hidden"], config["hidden_size"])
        self.assertEqual(info["heads"], config["num_attention_heads"])
        self.assertEqual(info["kv_heads"], config["num_key_value_heads"])
        self.assertEqual(info["vocab"], config["vocab_size"])
        self.assertEqual(info["context"], config["max_position_embeddings"])
        l, g = config["num_key_value_layers"], config["key_value_group_size"]
        self.assertEqual((info["swiftkv_layers"], info["group"]), (l, g))
        self.assertEqual(info["kv_slots"], l + (info["layers"] - l) // g)
        row = info["kv_heads"] * info["head_dim"]
        self.assertEqual(info["kv_bytes_per_token"], 2 * 2 * info["kv_slots"] * row)
        f32 = self.json_of("info", SWIFTKV, "--json", "--kv", "f32")
        self.assertEqual(f32["kv_bytes_per_token"], 2 * info["kv_bytes_per_token"])

    def test_a_plain_model_and_its_form(self):
        plain = self.json_of("info", "preset:llama-3.1-8b", "--json")
        self.assertIsNone(plain["swiftkv_layers"])
        self.assertEqual(plain["kv_bytes_per_token"], 131072)
        form = self.json_of("info", "preset:llama-3.1-8b", "--json", "--kv-layers", 16, "--group", 4)
        self.assertEqual((form["swiftkv_layers"], form["kv_slots"]), (16, 20))
        base, swiftkv = form["gflop_per_prompt_token"]
        self.assertEqual(base["relative"], 1)
        self.assertLess(swiftkv["relative"], 0.6)
        self.assertIn("SwiftKV l=16 g=4", run("info", "preset:llama-3.1-8b", "--kv-layers", 16,
                                              "--group", 4).stdout)

    def test_forms_that_do_not_fit(self):
        for l, g in ((0, 1), (999, 1), (15, 4)):
            words = ("info", "preset:llama-3.1-8b", "--kv-layers", l, "--group", g)
            self.refuses(2 if l == 0 else 1, words, l)


class RunTest(CliTest):
    def test_golden_results(self):
        for model in (PLAIN, SWIFTKV, MODELS / "qwen2-gguf/model.gguf", MODELS / "openelm"):
            folder = model if model.is_dir() else model.parent
            for case in golden(folder)[:2]:
                ids = self.write("ids.json", case["ids"])
                with self.subTest(model=model.name, n=len(case["ids"])):
                    self.check_case(model, ids, case)

    def check_case(self, model, ids, case):
        score = self.json_of("score", model, "--ids-file", ids, "--weights", "f32", "--json")
        self.assertEqual(score["n"], len(case["ids"]))
        self.assertEqual(score["ids"], case["ids"])
        self.assertEqual(score["argmax"], case["argmax"])
        self.assertAlmostEqual(score["nll"], case["nll"], delta=1e-3)
        self.assertAlmostEqual(score["perplexity"], math.exp(score["nll"]), places=6)
        self.assertIsNone(score["logprobs"][0])
        for ours, theirs in zip(score["logprobs"][1:], case["logprobs"][1:]):
            self.assertAlmostEqual(ours, theirs, delta=1e-3)
        words = ("generate", model, "--ids-file", ids, "--weights", "f32", "--ignore-eos")
        n = len(case["greedy"])
        out = self.json_of(*words, "-n", n, "--json")
        self.assertEqual(out["ids"], case["greedy"])
        self.assertIsNone(out["text"])
        self.assertEqual((out["prompt_tokens"], out["completion_tokens"]), (len(case["ids"]), n))
        self.assertGreater(out["kv_bytes"], 0)
        self.assertGreater(out["ttft_ms"], 0)
        self.assertGreater(out["prefill_tok_s"], 0)
        self.assertGreater(out["decode_tok_s"], 0)
        text = run(*words, "-n", n)
        self.assertEqual(text.stdout, " ".join(map(str, case["greedy"])) + "\n")

    def test_skipping_changes_nothing(self):
        case = golden(SWIFTKV)[2]
        ids = self.write("ids.json", case["ids"])
        words = ("generate", SWIFTKV, "--ids-file", ids, "--ignore-eos", "-n", 12, "--json")
        for more in ((), ("--chunk", 7), ("--chunk", 1), ("--prefill", "swiftkv-full"),
                     ("--threads", 1), ("--cpu", "ref")):
            with self.subTest(more):
                out = self.json_of(*words, "--weights", "f32", *more)
                self.assertEqual(out["ids"], case["greedy"])
        teacher = self.json_of(*words, "--weights", "f32", "--prefill", "teacher")
        self.assertNotEqual(teacher["ids"], case["greedy"])

    def test_kinds_of_weights_and_caches(self):
        ids = self.write("ids.json", golden(PLAIN)[1]["ids"])
        for weights in ("auto", "f32", "bf16", "int8"):
            for kv in ("auto", "f32", "bf16", "fp8", "int8"):
                out = self.json_of("generate", PLAIN, "--ids-file", ids, "-n", 4, "--ignore-eos",
                                   "--weights", weights, "--kv", kv, "--json")
                self.assertEqual(out["completion_tokens"], 4)

    def test_sampling(self):
        ids = self.write("ids.json", golden(PLAIN)[1]["ids"])
        words = ("generate", PLAIN, "--ids-file", ids, "-n", 24, "--ignore-eos", "--json",
                 "--temp", 2.5, "--top-k", 50, "--top-p", 0.99, "--min-p", 0.0001,
                 "--repeat-penalty", 1.1, "--presence-penalty", 0.1, "--frequency-penalty", -0.1)
        one, same, other = (self.json_of(*words, "--seed", seed)["ids"] for seed in (1, 1, 2))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_default_length_stays_in_the_context(self):
        context = self.json_of("info", PLAIN, "--json")["context"]
        ids = self.write("ids.json", [5] * (context - 3))
        out = self.json_of("generate", PLAIN, "--ids-file", ids, "--ignore-eos", "--json")
        self.assertEqual(out["completion_tokens"], 3)

    def test_windows(self):
        """Beyond the context, each window is scored as if it stood alone."""
        ids = golden(PLAIN)[2]["ids"][:25]
        path = self.write("ids.json", ids)
        whole = self.json_of("score", PLAIN, "--ids-file", path, "--ctx", 10, "--json")
        self.assertEqual(whole["ids"], ids)
        self.assertEqual(whole["scored"], 22)
        total = 0
        for at in range(0, 25, 10):
            path = self.write("part.json", ids[at : at + 10])
            part = self.json_of("score", PLAIN, "--ids-file", path, "--json")
            self.assertEqual(whole["argmax"][at : at + 10], part["argmax"])
            self.assertEqual(whole["logprobs"][at], None)
            for ours, theirs in zip(whole["logprobs"][at + 1 :], part["logprobs"][1:]):
                self.assertAlmostEqual(ours, theirs, places=5)
            total += part["nll"] * part["scored"]
        self.assertAlmostEqual(whole["nll"], total / 22, places=6)
        self.assertIn("perplexity", run("score", PLAIN, "--ids-file", path).stdout)

    def test_ids_from_standard_input(self):
        out = run("generate", PLAIN, "--ids-file", "-", "-n", 2, "--ignore-eos", data="[1, 2]")
        self.assertEqual((out.returncode, len(out.stdout.split())), (0, 2))

    def test_interrupt(self):
        """Ctrl-C ends a generation; what there is, is printed."""
        ids = self.write("ids.json", [1, 2, 3])
        command = [PROGRAM, "generate", "preset:" + PRESET, "--ids-file", ids, "-n", "5000",
                   "--ignore-eos"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = process.stdout.read(1)  # the first token is there
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=1200)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn(b"interrupted", errors)
        self.assertTrue(0 < len((first + output).split()) < 5000)


class TrainingInterruptTest(CliTest):
    def test_interrupt(self):
        """Ctrl-C and SIGTERM end a training run behind a checkpoint; the next run goes on there."""
        ids = self.write("ids.json", [i * i % 97 for i in range(500)])
        out = self.folder / "out"
        command = [str(word) for word in (
            PROGRAM, "distill", PLAIN, out, "--kv-layers", 2, "--data", ids, "--seq", 16, "--steps",
            1000000, "--threads", 1)]
        last = 0
        for which, more in ((signal.SIGINT, []), (signal.SIGTERM, ["--resume"])):
            process = subprocess.Popen(command + more, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            log = out / "log.jsonl"
            wait_until(lambda: process.poll() is not None
                       or (log.exists() and log.read_text().count("\n") >= last + 3))
            self.assertIsNone(process.poll())
            process.send_signal(which)
            process.send_signal(which)  # timeout(1) sends one to the process and one to its group
            _, errors = process.communicate(timeout=1200)
            self.assertEqual(process.returncode, 1, errors)
            step = json.loads((out / "checkpoint/latest.json").read_text())["step"]
            self.assertEqual(errors, f"swiftkv: training: stopped after step {step}; --resume continues\n")
            self.assertGreater(step, last)
            steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
            self.assertEqual(steps, list(range(1, step + 1)))
            last = step
        again = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((again.returncode, again.stderr.count("\n")), (1, 1), again.stderr)
        self.assertIn("--resume continues it", again.stderr)
        self.assertEqual(json.loads((out / "checkpoint/latest.json").read_text())["step"], last)


class TransformTest(CliTest):
    def test_transform(self):
        out = self.folder / "form"
        result = run("transform", PLAIN, out, "--kv-layers", 2, "--group", 2)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        info = self.json_of("info", out, "--json")
        self.assertEqual((info["swiftkv_layers"], info["group"]), (2, 2))
        ids = self.write("ids.json", golden(PLAIN)[1]["ids"])
        words = ("--ids-file", ids, "-n", 6, "--ignore-eos", "--weights", "f32", "--json")
        before = self.json_of("generate", PLAIN, *words)["ids"]
        self.assertEqual(self.json_of("generate", out, "--prefill", "teacher", *words)["ids"], before)
        self.assertEqual(self.json_of("generate", out, *words)["completion_tokens"], 6)

    def test_without_an_option(self):
        """Half of the layers, as distill chooses; as many more as groups need."""
        for words, kv_layers in (((), 2), (("--group", 3), 4)):
            out = self.folder / f"form-{kv_layers}"
            result = run("transform", PLAIN, out, *words)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"chosen: --kv-layers {kv_layers} of 4\n", result.stdout)
            self.assertEqual(self.json_of("info", out, "--json")["swiftkv_layers"], kv_layers)
            same = self.folder / f"same-{kv_layers}"
            self.assertEqual(run("transform", PLAIN, same, "--kv-layers", kv_layers, *words).returncode, 0)
            self.assertEqual((out / "config.json").read_bytes(), (same / "config.json").read_bytes())

    def test_in_closed_form(self):
        out = self.folder / "form"
        text = self.write("text.json", [(7 * i * i + 3) % 97 for i in range(900)])
        words = ("--kv-layers", 2, "--group", 2, "--init", "ridge", "--text", text, "--seq", 64)
        result = run("transform", PLAIN, out, *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"fitted on 900 tokens, ridge [0-9.]+: .* [0-9.]+ %, copied [0-9.]+ %")
        self.assertEqual(self.json_of("info", out, "--json")["group"], 2)
        few = run("transform", PLAIN, self.folder / "few", *words, "--tokens", 10)
        self.assertIn("fewer tokens than", few.stdout)
        empty = self.write("empty.txt", "")
        words = ("--kv-layers", 2, "--init", "ridge", "--text", empty)
        self.refuses(1, ("transform", PLAIN, self.folder / "none", *words))
        self.assertFalse((self.folder / "none").exists())

    def test_what_does_not_fit(self):
        out = self.folder / "form"
        for l, g in ((999, 1), (1, 2)):
            self.refuses(1, ("transform", PLAIN, out, "--kv-layers", l, "--group", g), PLAIN)
        self.refuses(1, ("transform", self.folder / "gone", out, "--kv-layers", 2), "gone")
        self.refuses(1, ("transform", PLAIN, self.folder / "no/form", "--kv-layers", 2))
        self.assertEqual(list(self.folder.iterdir()), [])


class BenchTest(CliTest):
    KEYS = {"prompt", "gen", "prefill", "weights", "kv", "threads", "batch", "ttft_ms",
            "prefill_tok_s", "decode_tok_s", "prefill_gflops", "model_gflops", "kv_bytes",
            "peak_rss_bytes"}
    QUICK = ("--prompt", "8,16", "--gen", 2, "--repeat", 1)

    def test_lines(self):
        lines = self.json_of("bench", PLAIN, *self.QUICK, "--batch", 3, "--json")
        self.assertEqual([line["prompt"] for line in lines], [8, 16])
        for line in lines:
            self.assertLessEqual(self.KEYS, line.keys())
            self.assertEqual((line["batch"], line["gen"], line["prefill"]), (3, 2, "full"))
            self.assertGreater(line["decode_tok_s"], 0)
            self.assertLess(line["prefill_gflops"], line["model_gflops"])

    def test_context_beyond_the_lengths(self):
        line = self.json_of("bench", PLAIN, "--prompt", 20, "--gen", 2, "--repeat", 1, "--batch", 2, "--ctx", 128,
                            "--json")
        self.assertEqual((line["batch"], line["prompt"]), (2, 20))

    def test_one_token(self):
        line = self.json_of("bench", PLAIN, "--prompt", 8, "--gen", 1, "--repeat", 1, "--json")
        self.assertIsNone(line["decode_tok_s"])

    def test_presets(self):
        names = run("bench", "--preset", "list").stdout.split()
        self.assertIn(PRESET, names)
        help_text = run("help", "bench").stdout
        self.assertEqual(names, help_text[help_text.index("Presets:") :].split()[1:])
        self.refuses(1, ("bench", "--preset", "gone"), "--preset list")

    def test_prompts_alone(self):
        line = self.json_of("bench", PLAIN, "--prompt", 8, "--gen", 0, "--repeat", 1, "--json")
        self.assertEqual((line["gen"], line["decode_tok_s"]), (0, None))
        self.assertGreater(line["prefill_tok_s"], 0)
        table = run("bench", SWIFTKV, "--prompt", 16, "--gen", 0, "--compare")
        self.assertEqual((table.returncode, "nan" in table.stdout), (0, False), table.stdout)

    def test_compare(self):
        teacher, swiftkv = self.json_of("bench", SWIFTKV, "--prompt", 64, "--gen", 2, "--compare",
                                        "--json")
        self.assertEqual((teacher["prefill"], swiftkv["prefill"]), ("teacher", "swiftkv"))
        ours = swiftkv["prefill_gflops"] * swiftkv["ttft_ms"]
        theirs = teacher["prefill_gflops"] * teacher["ttft_ms"]
        self.assertLess(ours, theirs)
        table = run("bench", SWIFTKV, "--prompt", 16, "--gen", 2, "--compare").stdout
        for part in ("unmodified", "SwiftKV l=", "time to first token", "decode tokens/s"):
            self.assertIn(part, table)

    def test_preset_forms(self):
        lines = self.json_of("bench", "--preset", PRESET, "--prompt", 128, "--gen", 2, "--repeat", 1,
                             "--kv-layers", 16, "--compare", "--json")
        self.assertEqual([(line["group"], line["kv"]) for line in lines],
                         [(1, "bf16"), (1, "bf16"), (2, "int8")])
        slots = [30, 30, 23]
        bytes_of = [line["kv_bytes"] for line in lines]
        self.assertEqual(bytes_of[0], bytes_of[1])
        self.assertAlmostEqual(bytes_of[2] / bytes_of[0], slots[2] / slots[0] / 2, delta=0.02)

    def test_peak(self):
        peak = self.json_of("bench", "--peak", "--json")
        self.assertEqual(set(peak), {"f32_gflops", "bf16_gflops", "int8_gops", "int4_gops", "read_gbs",
                                     "threads", "cpu"})
        self.assertGreater(peak["read_gbs"], 0)


class KvPredictionTest(CliTest):
    """KV Prediction and what it is compared with, by the commands that know them."""

    MODEL = ROOT / "tests/data/kvpred/openelm-lp"

    def ids(self, ids):
        return self.write("ids.json", list(ids))

    def test_generate(self):
        case = golden(self.MODEL)[-1]
        words = ("generate", self.MODEL, "--ids-file", self.ids(case["ids"]), "--weights", "f32",
                 "-n", len(case["greedy"]), "--ignore-eos", "--threads", 1, "--json")
        out = self.json_of(*words)
        self.assertEqual(out["ids"], case["greedy"])
        self.assertEqual(self.json_of(*words, "--prefill", "kvpred", "--chunk", 7)["ids"], case["greedy"])
        base = self.json_of(*words, "--prefill", "full")
        self.assertGreater(out["kv_bytes"], base["kv_bytes"])
        for how in ("random:0.5", "static:0.5", "lazy:0.75,0.1"):
            less = self.json_of(*words, "--prefill", "full", "--prune", how)
            self.assertLess(less["kv_bytes"], base["kv_bytes"] + 1)
            self.refuses(1, (*words, "--prune", how), "prune", "kvpred")

    def test_score(self):
        case = golden(self.MODEL)[-1]
        words = ("score", self.MODEL, "--ids-file", self.ids(case["ids"]), "--weights", "f32",
                 "--threads", 1, "--json")
        out = self.json_of(*words)
        self.assertEqual(out["argmax"], case["argmax"])
        for got, want in zip(out["logprobs"][1:], case["logprobs"][1:]):
            self.assertAlmostEqual(got, want, delta=1e-4)

    def test_info_and_bench(self):
        info = self.json_of("info", "preset:openelm-1.1b+openelm-270m", "--json", "--context", 59)
        self.assertEqual(info["auxiliary_layers"], 16)
        self.assertAlmostEqual(info["parameters"] / info["auxiliary_parameters"], 3.98, delta=0.01)
        self.assertIn("KV Prediction", run("info", self.MODEL).stdout)
        lines = self.json_of("bench", self.MODEL, "--prompt", 64, "--gen", 2, "--compare", "--json",
                             "--threads", 1, "--repeat", 1)
        self.assertEqual([line["prefill"] for line in lines], ["full", "kvpred"])
        done = [line["prefill_gflops"] / line["model_gflops"] for line in lines]
        self.assertLess(done[1], done[0])
        line = self.json_of("bench", MODELS / "openelm", "--prompt", 64, "--gen", 2, "--json",
                            "--threads", 1, "--repeat", 1, "--prune", "random:0.5")
        self.assertLess(line["prefill_gflops"] / line["model_gflops"], 0.55)

    def test_not_served(self):
        result = run("serve", self.MODEL, "--port", 0)
        self.assertEqual(result.returncode, 1)
        self.assertIn("--prefill full serves the base model", result.stderr)


class ContractTest(CliTest):
    """The JSON that scripts and other programs rely on: names, types, and what may be null."""

    NUMBER = (int, float)
    GENERATE = {"ids": list, "text": (str, type(None)), "prompt_tokens": int,
                "completion_tokens": int, "ttft_ms": NUMBER, "prefill_tok_s": NUMBER,
                "decode_tok_s": NUMBER, "kv_bytes": int}
    SCORE = {"n": int, "logprobs": list, "argmax": list, "nll": NUMBER}
    INFO = {"architecture": str, "layers": int, "hidden": int, "heads": int, "kv_heads": int,
            "head_dim": int, "vocab": int, "context": int, "swiftkv_layers": (int, type(None)),
            "group": int, "kv_slots": int, "kv_bytes_per_token": int}
    BENCH = {"prompt": int, "gen": int, "prefill": str, "weights": str, "ttft_ms": NUMBER,
             "prefill_tok_s": NUMBER, "decode_tok_s": NUMBER, "prefill_gflops": NUMBER,
             "model_gflops": NUMBER, "kv_bytes": int, "peak_rss_bytes": int}
    SIMILARITY = {"layers": int, "tokens": int, "simscore": list}

    def fields(self, fields, *words):
        out = self.json_of(*words, "--json")
        for name, kind in fields.items():
            self.assertIsInstance(out.get(name, self), kind, (words[0], name))
        return out

    def test_fields(self):
        ids = self.write("ids.json", [1, 2, 3, 4])
        text = self.write("text", "Once upon a time")
        for model in (GGUF, PLAIN, SWIFTKV):
            out = self.fields(self.GENERATE, "generate", model, "--ids-file", ids, "-n", 3,
                              "--ignore-eos")
            self.assertEqual((out["prompt_tokens"], out["completion_tokens"], len(out["ids"])), (4, 3, 3))
            self.assertEqual(out["text"] is None, model is not GGUF)
            out = self.fields(self.SCORE, "score", model, "--ids-file", ids)
            self.assertEqual((out["n"], len(out["logprobs"]), len(out["argmax"])), (4, 4, 4))
            self.assertEqual([p is None for p in out["logprobs"]], [True, False, False, False])
            self.assertAlmostEqual(out["nll"], -sum(out["logprobs"][1:]) / 3, places=6)
            out = self.fields(self.INFO, "info", model)
            self.assertEqual(out["swiftkv_layers"] is None, model is not SWIFTKV)
            self.fields(self.BENCH, "bench", model, "--prompt", 8, "--gen", 2, "--repeat", 1)
        out = self.fields(self.SIMILARITY, "similarity", GGUF, "--text", text)
        self.assertEqual(len(out["simscore"]), out["layers"] - 1)
        out = self.json_of("tokenize", GGUF, "--file", text, "--json")
        self.assertEqual((list(out), {type(i) for i in out["ids"]}), (["ids"], {int}))

    def test_commands_without_json(self):
        """A template's text is its bytes, a conversation is for people."""
        for command in ("render", "chat"):
            self.assertEqual(run(command, GGUF, "--json").returncode, 2)


class RenderTest(CliTest):
    TEMPLATE = ("{{ bos }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
                "{% if tools %}{{ tools[0].name }}\n{% endif %}"
                "{% if add_generation_prompt %}<assistant>{% endif %}")

    def render(self, messages, *more):
        template = self.write("t.jinja", self.TEMPLATE)
        path = self.write("messages.json", messages)
        result = run("render", template, "--messages", path, *more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_render(self):
        messages = [{"role": "user", "content": "caf\u00e9 \"x\" <b>"}]
        plain = '<user>caf\u00e9 "x" <b>\n'
        self.assertEqual(self.render(messages), plain)
        self.assertEqual(self.render({"messages": messages}), plain)
        self.assertEqual(self.render({"messages": messages, "add_generation_prompt": True}),
                         plain + "<assistant>")
        self.assertEqual(self.render(messages, "--add-generation-prompt"), plain + "<assistant>")
        tools, variables = self.write("tools.json", [{"name": "f"}]), self.write("v.json", {"bos": "^"})
        self.assertEqual(self.render(messages, "--tools", tools, "--vars", variables),
                         "^" + plain + "f\n")

    def test_bad_input(self):
        template = self.write("t.jinja", self.TEMPLATE)
        for content in ("3", "{}", '{"messages": 3}', "[", '{"a": 1'):
            path = self.write("messages.json", content)
            self.refuses(1, ("render", template, "--messages", path), path)
        messages = self.write("messages.json", [])
        self.refuses(1, ("render", template, "--messages", messages, "--tools", template), template)
        self.refuses(1, ("render", template, "--messages", messages, "--vars", messages), messages)
        broken = self.write("broken.jinja", "{% for %}")
        self.refuses(1, ("render", broken, "--messages", messages))


@unittest.skipUnless(STORIES.exists(), f"{STORIES} is absent")
class TextTest(CliTest):
    def setUp(self):
        super().setUp()
        self.reference = ROOT / "tests/data/reference/tinystories-656k.json"

    def test_tokenize(self):
        text = "Once upon a time, there was a small cat."
        ids = self.json_of("tokenize", STORIES, "-p", text, "--json")["ids"]
        path = self.write("text.txt", text)
        self.assertEqual(run("tokenize", STORIES, "--file", path).stdout, " ".join(map(str, ids)) + "\n")
        self.assertEqual(run("tokenize", STORIES, "--file", "-", data=text).stdout.split(),
                         list(map(str, ids)))
        special = self.json_of("tokenize", STORIES, "-p", text, "--add-special", "--json")["ids"]
        self.assertEqual(special, [1] + ids)
        path = self.write("ids.json", ids)
        decoded = run("tokenize", STORIES, "--decode", "--ids-file", path).stdout
        self.assertEqual(decoded, text)
        self.assertEqual(self.json_of("tokenize", STORIES, "--decode", "--ids-file", path, "--json"),
                         {"text": text})
        marked = "<|end_story|>"
        self.assertEqual(self.json_of("tokenize", STORIES, "-p", marked, "--parse-special", "--json"),
                         {"ids": [2]})
        self.assertEqual(self.json_of("tokenize", STORIES, "-p", "", "--json"), {"ids": []})

    def test_stop_strings(self):
        words = ("generate", STORIES, "-p", "Once upon a time", "-n", 60)
        whole = run(*words).stdout
        n_words = len(whole.split())
        self.assertGreater(n_words, 20)
        for start in range(4, 40, 3):
            stop = whole[start : start + 5]
            with self.subTest(stop=stop):
                expected = whole[: whole.index(stop)]
                self.assertEqual(run(*words, "--stop", stop).stdout, expected + "\n")
                out = self.json_of(*words, "--stop", "nowhere", "--stop", stop, "--json")
                self.assertEqual((out["text"], out["finish"]), (expected, "stop"))
        out = self.json_of(*words, "--stop", "no such text", "--json")
        self.assertEqual(out["text"] + "\n", whole)

    def test_streams(self):
        """The prompt's tokens and the generated ones give the prompt and the generated text."""
        prompt = "Once upon a time"
        out = self.json_of("generate", STORIES, "-p", prompt, "-n", 40, "--json")
        ids = self.json_of("tokenize", STORIES, "-p", prompt, "--json")["ids"]
        path = self.write("ids.json", ids + out["ids"])
        decoded = run("tokenize", STORIES, "--decode", "--ids-file", path).stdout
        self.assertEqual(decoded, prompt + out["text"])

    def test_empty_prompt(self):
        empty = self.json_of("generate", STORIES, "-p", "", "-n", 8, "--json")
        bos = self.write("ids.json", [1])
        self.assertEqual(empty["prompt_tokens"], 1)
        self.assertEqual(empty["ids"], self.json_of("generate", STORIES, "--ids-file", bos, "-n", 8,
                                                    "--json")["ids"])

    def test_windows(self):
        """The first is the reference's; each is what its tokens are alone; the perplexity is over all of them."""
        if not self.reference.exists():
            self.skipTest(f"{self.reference} is absent")
        reference = json.loads(self.reference.read_text())
        want, n = reference["windows"][0], reference["context"]
        text = self.write("text.txt", (ASSETS / "text" / reference["sample"]["file"]).read_bytes()[:8000])
        out = self.json_of("score", STORIES, "--file", text, "--json")
        self.assertEqual(out["ids"][:n], want["ids"])
        self.near(out["logprobs"][:n], want["logprobs"])
        starts = range(0, out["n"], n)
        self.assertGreater(len(starts), 5)
        text_ids = self.json_of("tokenize", STORIES, "--file", text, "--json")["ids"]
        self.assertEqual([id for i, id in enumerate(out["ids"]) if i not in starts], text_ids)
        for start in starts:
            self.assertEqual(out["ids"][start], reference["bos"])
            ids = self.write("ids.json", out["ids"][start : start + n])
            alone = self.json_of("score", STORIES, "--ids-file", ids, "--json")["logprobs"]
            self.near(out["logprobs"][start : start + n], alone)
        scored = [value for value in out["logprobs"] if value is not None]
        self.assertEqual(out["scored"], len(scored))
        self.assertEqual(out["scored"], out["n"] - len(starts))
        self.assertAlmostEqual(out["perplexity"], math.exp(-math.fsum(scored) / len(scored)), delta=1e-6 * out["perplexity"])
        if "SKV_TEST_ALL" in os.environ:
            self.check_whole_text(reference)

    def near(self, got, want):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertTrue(a is b is None or abs(a - b) < 1e-4, (a, b))

    def check_whole_text(self, reference):
        row = next(row for row in reference["perplexity"] if row["file"] == "tinystories-b.txt")
        path = ASSETS / "text" / row["file"]
        out = self.json_of("score", STORIES, "--file", path, "--json")
        self.assertEqual(out["scored"], row["n_ids"])
        self.assertAlmostEqual(out["perplexity"] / row["perplexity"], 1, delta=1e-3)

    def test_similarity(self):
        text = self.write("text.txt", "Once upon a time, there was a little girl. " * 20)
        chart = self.folder / "chart.svg"
        out = self.json_of("similarity", STORIES, "--text", text, "--svg", chart, "--json")
        self.assertEqual(len(out["simscore"]), out["layers"] - 1)
        self.assertTrue(all(-1 <= score <= 1 for score in out["simscore"]))
        self.assertIn("</svg>", chart.read_text())
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         ["chart.svg", "text.txt"])
        # A fast machine needs more text until it has to say how far it is.
        part, progress, n = (ASSETS / "text/tinystories-b.txt").read_text()[:200000], "", 1
        while "reading" not in progress and n < 64:
            progress = self.on_terminal("similarity", STORIES, "--text", self.write("long.txt", n * part), "--threads", 1)
            n *= 2
        self.assertRegex(progress, r"reading the text: \d+ of \d+ tokens, \d+ tokens/s, \d+ s left")
        gone = self.folder / "no/chart.svg"
        self.refuses(1, ("similarity", STORIES, "--text", text, "--svg", gone), gone)

    def test_compare(self):
        """Layer l keeps its own input, so l = 1 of 2 layers loses nothing, by construction."""
        model = self.folder / "half"
        self.assertEqual(run("transform", STORIES, model, "--kv-layers", 1).returncode, 0)
        text = self.write("text.txt", (ASSETS / "text/tinystories-b.txt").read_text()[:20000])
        nll = [self.json_of("score", model, "--file", text, "--prefill", how, "--json")["nll"]
               for how in ("teacher", "swiftkv-full")]
        self.assertAlmostEqual(*nll, delta=1e-6)
        words = ("compare", model, "-p", "Once upon a time, there was a", "-n", 30)
        both, = self.json_of(*words, "--json")
        self.assertTrue(both["same"])
        self.assertEqual(both["teacher"]["text"], both["swiftkv"]["text"])
        self.assertGreater(len(both["teacher"]["text"].split()), 10)
        self.assertIn("The same words in 1 of 1 answers.", run(*words).stdout)
        documents = self.json_of("compare", model, "--task", "lines", "--lengths", 300, "--count", 3, "-n", 4,
                                 "--json")
        self.assertEqual([line["task"] for line in documents], ["lines"] * 3)
        self.assertTrue(all(line["same"] and line["expected"].isdigit() for line in documents))
        self.refuses(1, ("compare", STORIES, "-p", "x"), "not in SwiftKV form")
        self.refuses(2, ("compare", model, "-p", "x", "--prefill", "teacher"), "prefill teacher")

    def test_invalid_utf8(self):
        path = self.write("bytes.txt", b"Once \xff\xfe upon \xc3")
        for words in (("tokenize",), ("score",), ("generate", "-n", 4)):
            result = run(words[0], STORIES, "--file", path, *words[1:])
            self.assertIn(result.returncode, (0, 1))
            self.assertLessEqual(len(result.stderr.splitlines()), 1)

    def test_chat(self):
        template = self.write("t.jinja", "{% for m in messages %}{{ m.content }} {% endfor %}")
        lines = "There was a cat.\nThe cat\n\n/stats\n/reset\nThere was a cat.\n"
        result = run("chat", STORIES, "--template", template, "-n", 12, data=lines)
        self.assertEqual(result.returncode, 0, result.stderr)
        answers = result.stdout.splitlines()
        self.assertGreaterEqual(len(answers), 3)
        self.assertEqual(answers[0], answers[-1])
        self.assertIn("from the cache", result.stderr)
        self.refuses(1, ("chat", STORIES), STORIES, "--template", "--raw")
        raw = run("chat", STORIES, "--raw", "-n", 5, data="Once upon a time\n")
        self.assertEqual((raw.returncode, raw.stderr), (0, ""))
        self.assertGreater(len(raw.stdout), 5)


@unittest.skipUnless(STORIES_GGUF.exists(), f"{STORIES_GGUF} is absent")
class GoldenTextTest(CliTest):
    def test_published_text(self):
        golden_text = ROOT / "tests/data/reference/stories260k-golden.txt"
        if not golden_text.exists():
            self.skipTest(f"{golden_text} is absent")
        result = run("generate", STORIES_GGUF, "-p", "", "-n", 200, "--ignore-eos")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.strip(), golden_text.read_text().strip())


if __name__ == "__main__":
    if not PROGRAM.exists():
        print(f"skipped: {PROGRAM} is not built")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
