#!/usr/bin/env python3
"""Plants bugs in the kernels for GPUs, one at a time: does the emulated GPU find each of them?

    tools/checks/check_cuda_bugs.py [-j JOBS] [NUMBER ...]

Builds tests/cuda with AddressSanitizer for each bug, with kernels of two sizes of heads, and runs its
tests, in all three orders of lanes and warps. Prints how each was found; exits with 1 if one was not.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = "src/engine/backend/cuda/kernels"
PROMPT, DECODE, ATTENTION = "attention_prompt.inc", "attention_decode.inc", "attention.inc"
ROWS, PLACE, VOTES, ARGS = "rows.inc", "place.inc", "votes.inc", "cuda_args.h"
CODES, PAGES, EXPERTS, STATES = "codes.inc", "pages.inc", "experts.inc", "states.inc"
PICK, WGMMA = "pick.inc", "attention_wgmma.inc"
SIZES = {"80", "256"}  # rows of tiles with room between them, and tiles of half a page
ARRIVED = "skv_sync(); /* the tile is there, and the other stage is free */"
SCORES = "        skv_wgmma_wait(1); /* for the scores */\n"
SUMS = "        skv_wgmma_wait(0); /* for the values */\n"
HOLD_SCORES, HOLD_SUMS = "        skv_wgmma_hold(x.s, KEYS / 8);\n", "        skv_wgmma_hold(x.o, DH / 8);\n"
LEAVE_KEYS = "        if (!CODED) FN(wgmma_leave)(at->keys_free + stage);\n"
LEAVE_VALUES, TURN = "        FN(wgmma_leave)(at->values_free + before);\n", "        FN(wgmma_turn)(&x);\n"
BUGS = [  # (the fault, the file, what is replaced, by what)
    ("no barrier after the wait for a tile", PROMPT, ARRIVED, ""),
    ("no wait for a tile", PROMPT, "skv_cp_async_wait(0);\n        " + ARRIVED, ARRIVED),
    ("a wait that leaves one group", PROMPT, "skv_cp_async_wait(0);\n        " + ARRIVED,
     "skv_cp_async_wait(1);\n        " + ARRIVED),
    ("no barrier after widening", PROMPT, "scales);\n            skv_sync();", "scales);"),
    ("the next tile to the stage in use", PROMPT, "staged + (stage ^ 1) * STAGE", "staged + stage * STAGE"),
    ("values of rows beyond the end are read", PROMPT, "first + r < v->end", "1"),
    ("one row too many is seen", ATTENTION, "if (r >= see ||", "if (r > see ||"),
    ("a window that is one row too long", ATTENTION, "r + v->window < see", "r + v->window + 1 < see"),
    ("rows that are lost are counted", ATTENTION, "item.n_past - v.head.dropped", "item.n_past"),
    ("another swizzle when keys are read", PROMPT, "skv_ldmatrix(b, keys + AT(r, c))",
     "skv_ldmatrix(b, keys + AT(r, c ^ 1))"),
    ("tiles have another swizzle than queries", PROMPT, "((c) ^ ((r)&7))", "((c) ^ ((r)&3))"),
    ("a ring without its barrier", DECODE, "STAGES - 2 : 0);\n        skv_sync_warp();", "STAGES - 2 : 0);"),
    ("a ring with a wait too few", DECODE, "skv_cp_async_wait(STAGES > 1 ? STAGES - 2 : 0)",
     "skv_cp_async_wait(STAGES - 1)"),
    ("queries are overwritten before they are read", DECODE, "skv_sync(); /* and have been read */", ""),
    ("no barrier before sums are written", DECODE, "skv_sync(); /* all rings are free */", ""),
    ("no barrier before sums are joined", DECODE, "(DH + 2));\n    skv_sync();", "(DH + 2));"),
    ("no barrier after a warp has widened", DECODE, "tiles);\n        skv_sync_warp();", "tiles);"),
    ("shared memory is 16 bytes too small", ARGS, "return run > merge ? run : merge;",
     "return (run > merge ? run : merge) - 16;"),
    ("a portion without its sink", ATTENTION, "sum = skv_sink(a.sinks, head, most)", "sum = 0"),
    ("the sum of a block without a barrier", ROWS, "= x;\n    skv_sync();\n    float sum", "= x;\n    float sum"),
    ("scratch of a sum is used again too early", ROWS, "sum += shared[i];\n    skv_sync();", "sum += shared[i];"),
    ("a row is read beyond its end", ROWS, "i + j < n ? skv_load1", "i + j <= n ? skv_load1"),
    ("a row is written beyond its end", ROWS, "j < 8 && i + j < n", "j < 8 && i + j <= n"),
    ("an address that is not aligned", ROWS, "skv_store16((uint16_t *)y->at + at, lo)",
     "skv_store16((uint16_t *)y->at + at + 1, lo)"),
    ("rotation without its barrier", PLACE, "skv_sync_warp();\n", "\n"),
    ("a barrier that half a warp meets", PLACE, "skv_sync_warp();\n",
     "if (threadIdx.x % 32 < 16) skv_sync_warp();\n"),
    ("votes read queries before they are there", VOTES, "n_group, q);\n        skv_sync();", "n_group, q);"),
    ("votes overwrite queries that are read", VOTES, "        skv_sync();\n        vote_queries", "        vote_queries"),
    ("votes of the first token's window", VOTES, "a->first + j + 1", "a->first + 1"),
    ("levels are read before they are there", CODES, "& 0xffu);\n    skv_sync();", "& 0xffu);"),
    ("sums of warps are read without a barrier", CODES, "    skv_sync();\n    for (uint32_t i = threadIdx.x; i < a.M",
     "    for (uint32_t i = threadIdx.x; i < a.M"),
    ("the second product has the first one's columns", CODES, "x.at[i], x.at[i + 1]", "x.at[0], x.at[1]"),
    ("the scale of the group before", CODES, "(k >> w->scale_shift)", "((k - (k > 0)) >> w->scale_shift)"),
    ("mins without their fine factor", CODES, "min *= -(float)w->fine_min[place]", "min = -min"),
    ("nibbles in the other order", CODES, "eight >> 4 * j & 15u", "eight >> 4 * (j ^ 1) & 15u"),
    ("rows of x beyond the last are read", CODES, "if (m < a->M) x =", "x ="),
    ("columns beyond the last are written", CODES, "if (n >= a.N) continue;", ""),
    ("rows of codes beyond the last are read", CODES, "n0 + row + 8 < last ? n0 + row + 8 : last", "n0 + row + 8"),
    ("shared memory of sums is too small", ARGS, "SKV_CUDA_FEW_SHARED = 64 + 4", "SKV_CUDA_FEW_SHARED = 64 + 3"),
    ("rows that stay come from the page before", PAGES, "job.from[row / SKV_CUDA_PAGE_ROWS]",
     "job.from[(row - (row > 0)) / SKV_CUDA_PAGE_ROWS]"),
    ("scales of rows that stay are left", PAGES, "to[half + at] = from[half + old];", ""),
    ("the scales of values are those of keys", PAGES, "(2 * job.head_dim + scale)", "(2 * job.head_dim)"),
    ("a row that turns keeps its value's scale", PAGES, "to[scales + row] = from[scales + old];", ""),
    ("a row that turns goes to the first page", PAGES, "a.to[row / SKV_CUDA_PAGE_ROWS]", "a.to[0]"),
    ("rows that do not move are turned", PAGES, "if (!a.moves[i])", "if (0)"),
    ("an expert is chosen twice", EXPERTS, "if (at % 32 == threadIdx.x) left[at] = 0;", ""),
    ("of equal experts the last is chosen", EXPERTS, "other == most && other_at < at", "other == most && other_at > at"),
    ("counts of pairs without a barrier", EXPERTS, "= own;\n    skv_sync();", "= own;"),
    ("pairs behind the first 32 begin anew", EXPERTS, "        place += n;\n", ""),
    ("tiles of experts that overlap", EXPERTS, "a->first[e] / m + e", "a->first[e] / m"),
    ("rows beyond an expert's last are read", EXPERTS, "r < m && place < tile->end", "r < m"),
    ("columns beyond a row are read", EXPERTS, "k < a->K && r < m", "r < m"),
    ("no barrier after the wait for a portion", EXPERTS, "skv_sync(); /* portion p", "/* portion p"),
    ("a wait that leaves a portion", EXPERTS, "wait(SKV_CUDA_EXPERT_STAGES - 2)", "wait(SKV_CUDA_EXPERT_STAGES - 1)"),
    ("another swizzle when weights are read", EXPERTS, "2 * k + lane / 8 % 2", "2 * k + (lane / 8 + 1) % 2"),
    ("a convolution sees the sequence before", STATES, "back < a.n_taps && back <= span.n_past", "back < a.n_taps"),
    ("a convolution keeps a row too few", STATES, "left <= a.ring_rows", "left < a.ring_rows"),
    ("S of the sequence before", STATES, "column < a->value_dim && v->span.n_past > 0", "column < a->value_dim"),
    ("S has rows that may be taken back", STATES, "v.settles - v.span.n_undo : 0", "v.settles : 0"),
    ("keys are read before they are there", STATES, "skv_sync(); /* and these are there */", ""),
    ("keys are overwritten before they are read", STATES, "skv_sync(); /* the rows before have been read */", ""),
    ("a kept row with another's write", STATES, "gates[a->n_value_heads + h]", "gates[h]"),
    ("tiled heads by groups", STATES, "a->tiled ? h % a->n_key_heads : h / group", "h / group"),
    ("columns beyond a head's are written", STATES, "lane % 4 != 0 || column >= a->value_dim", "lane % 4 != 0"),
    ("shared memory of a scan is too small", ARGS, "(40 + 8) * 4 + 4 * 32", "(40 + 8) * 4 + 4 * 24"),
    ("every group has a weight of its own", STATES, "a.per_group ? first : 0", "first"),
    ("sums of parts are read before they are there", PICK, "parts[threadIdx.x] = sum;\n    }\n    skv_sync();",
     "parts[threadIdx.x] = sum;\n    }"),
    ("sums by id without a barrier", PICK, "= own;\n    skv_sync();", "= own;"),
    ("penalties beside biases", PICK, "+= bias.bias;\n    }\n    skv_sync();", "+= bias.bias;\n    }"),
    ("the count of the largest begins late", PICK, "*n = 0;\n    skv_sync();", "*n = 0;"),
    ("of equal logits the last one is cut", PICK, "n_kept * each - 1", "n_kept * each"),
    ("zeros differ by sign", PICK, "skv_bits(x) == 0x80000000u ? 0 :", ""),
    ("held ids come though others may", PICK, "l.held = w.held;", ""),
    ("a biased id without its mask", PICK, "y[i] = element(l, i)", "y[i] = l->x[i]"),
    ("the last that may come does not", PICK, "i > l->last_id", "i >= l->last_id"),
    ("shared memory of picks is too small", ARGS, "(SKV_CUDA_PICK_WAYS + 1) * 8", "SKV_CUDA_PICK_WAYS * 8"),
    ("tiles of wgmma without their proxy fence", WGMMA, "skv_fence_proxy();", ""),
    ("tiles of wgmma are told of too early", WGMMA, "skv_cp_async_wait(0);\n", "\n"),
    ("barriers are used before they are made", WGMMA, "skv_sync();\n    /* A thread", "/* A thread"),
    ("keys of wgmma are read too early", WGMMA, "skv_phases_wait(at->keys_there + stage, t / STAGES % 2);", ""),
    ("values of wgmma are read too early", WGMMA,
     "skv_phases_wait(at->values_there + before, (t - 1) / STAGES % 2);", ""),
    ("queries of wgmma are read too early", WGMMA, "skv_phases_wait(at->queries_there, 0);", ""),
    ("the wrong phase of a free tile", WGMMA, "(t / STAGES + 1) % 2", "t / STAGES % 2"),
    ("the wrong phase of keys", WGMMA, "keys_there + stage, t / STAGES % 2", "keys_there + stage, (t / STAGES + 1) % 2"),
    ("the phase before of values", WGMMA, "(t - 1) / STAGES % 2", "(t + 1) / STAGES % 2"),
    ("a phase ends one warp too early", WGMMA, "keys_free + i, ROWS / 16)", "keys_free + i, ROWS / 16 - 1)"),
    ("keys are free before scores are there", WGMMA, SCORES + HOLD_SCORES + LEAVE_KEYS, LEAVE_KEYS + SCORES + HOLD_SCORES),
    ("values are free before the wait", WGMMA, SUMS + HOLD_SUMS + LEAVE_VALUES, LEAVE_VALUES + SUMS + HOLD_SUMS),
    ("scores are used before their wait", WGMMA, SCORES, ""),
    ("a wait that leaves the scores", WGMMA, SCORES, "skv_wgmma_wait(2);\n"),
    ("sums of values are used before their wait", WGMMA, SUMS, ""),
    ("weights change while they are multiplied", WGMMA, SUMS + HOLD_SUMS + LEAVE_VALUES + TURN,
     TURN + SUMS + HOLD_SUMS + LEAVE_VALUES),
    ("a wgmma without its fence", WGMMA, "        skv_wgmma_fence();\n", ""),
    ("another stride of queries", WGMMA, "16, 1024)", "16, 512)"),
    ("another stride of keys", WGMMA, "k % 4 * 32, 16, 1024), k > 0", "k % 4 * 32, 16, 2048), k > 0"),
    ("another distance of columns of values", WGMMA, "KEYS * 128, 1024", "KEYS * 64, 1024"),
    ("the step along values is too short", WGMMA, "values + j * 2048", "values + j * 1024"),
    ("the step along keys is too long", WGMMA, "keys + k / 4 * (KEYS * 128) + k % 4 * 32", "keys + k * 32"),
    ("a descriptor with swizzle of 64 bytes", ATTENTION, "(uint64_t)1 << 62", "(uint64_t)2 << 62"),
    ("a descriptor without swizzle", ATTENTION, " | (uint64_t)1 << 62", ""),
    ("tiles of wgmma without swizzle", WGMMA, "(((c) ^ (r)) & 7)", "((c) & 7)"),
    ("values beyond the end reach wgmma", WGMMA, "row0 + r < v->end", "1"),
    ("a page beyond the table", WGMMA, "skv_least(first, v->end - 1)", "(first)"),
    ("scores beyond the end are not masked", WGMMA, "row + KEYS > v->first_sees", "row > v->first_sees"),
    ("a warpgroup with the other's queries", WGMMA, "* (64 * 128)", "* (32 * 128)"),
    ("values have the scales of keys", WGMMA, "scales[KEYS + n", "scales[n"),
    ("scales are free before they are read", WGMMA, "if (!CODED) FN(wgmma_leave)(at->keys_free + stage);", "FN(wgmma_leave)(at->keys_free + stage);"),
    ("sums do not shrink", WGMMA, "x->o[d][i] *= x->shrink[i / 2]", "x->o[d][i] *= 1"),
    ("shared memory of wgmma is too small", ARGS, "(1 + 4 * stages) * 8", "4 * stages * 8"),
]
FLAGS = "-std=c11 -D_POSIX_C_SOURCE=200809L -O1 -g1 -w -fsanitize=address -fno-common".split()
LIBRARY = ["src/base/rng.c", "src/engine/kernels/experts.c", "src/engine/kernels/kv_page.c",
           "src/engine/kernels/ref/logits_ref.c"]
ROOMS = ["src", "src/engine", "src/base", "tests/support"]  # where headers are found


def keep_sizes(folder):
    """Leaves out the kernels and cases of other sizes of heads, which take longest to compile."""
    def keep(match):
        return match.group(0) if match.group(1) in SIZES else ""

    def dims(match):
        return "dims[] = {" + ", ".join(d for d in match.group(1).split(", ") if d in SIZES) + "}"

    for path, pattern, replace in (
        (folder / KERNELS / "all_kernels.inc", r'#define DH (\d+)\n#include "attention_size.inc"\n', keep),
        (folder / KERNELS / ARGS, r" *SKV_CUDA_ATTENTION\(X, (\d+)\) *\\?\n", keep),
        (folder / "tests/cuda/check_cuda_kernels_attention.c", r"dims\[\] = \{([^}]*)\}", dims),
    ):
        path.write_text(re.sub(pattern, replace, path.read_text()))
    path = folder / "tests/cuda/check_cuda_kernels_attention.c"
    first, second = sorted(SIZES, key=int)
    text = path.read_text().replace("prompt_32_bf16", f"prompt_{second}_bf16")
    path.write_text(re.sub(r"(prompt|decode)_16_bf16", rf"\1_{first}_bf16", text))


def build_and_run(folder):
    """(whether the tests passed, what they printed)"""
    tests = [p for p in (folder / "tests/cuda").glob("*.c") if not re.search("driver|blas|backend|ranks", p.name)]
    sources = [*sorted(str(p) for p in tests), *(str(ROOT / s) for s in LIBRARY)]
    rooms = [f"-I{base / room}" for base in (folder, ROOT) for room in ROOMS]
    program = folder / "test"
    subprocess.run(["gcc", *FLAGS, *rooms, "-o", program, *sources, "-lcmocka", "-lm"], check=True)
    done = subprocess.run(["timeout", "300", program], capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def how_found(text):
    if match := re.search(r"emulated GPU: (.*?) \(block", text):
        return match.group(1)
    if match := re.search(r"AddressSanitizer: ([\w-]+)", text):
        return match.group(1)
    return "wrong results"


def try_bug(bug):
    """(the fault, whether it was found, how)"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in (KERNELS, "tests/cuda"):
            shutil.copytree(ROOT / part, folder / part)
        keep_sizes(folder)
        if bug:
            path = folder / KERNELS / bug[1]
            text = path.read_text()
            if text.count(bug[2]) == 0:
                return bug[0], False, "it is not planted: the code has changed"
            path.write_text(text.replace(bug[2], bug[3], 1))
        passed, text = build_and_run(folder)
    if not bug:
        return "no bug", passed, "passes" if passed else text[-2000:]
    return bug[0], not passed, "" if passed else how_found(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", type=int, default=2, help="how many at a time")
    parser.add_argument("number", type=int, nargs="*", help="of a bug, from 1 on; 0: none, which must pass")
    arguments = parser.parse_args()
    numbers = arguments.number or range(len(BUGS) + 1)
    with ThreadPoolExecutor(arguments.j) as threads:
        n_good = 0
        for what, good, how in threads.map(lambda i: try_bug(BUGS[i - 1] if i else None), numbers):
            print(f"{'ok' if good else 'MISSED':7} {what:48} {how}", flush=True)
            n_good += good
    print(f"{n_good} of {len(numbers)} as they should be")
    return 0 if n_good == len(numbers) else 1


if __name__ == "__main__":
    sys.exit(main())
