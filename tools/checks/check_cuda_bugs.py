#!/usr/bin/env python3
"""Plants bugs in the back end for GPUs, one at a time: do the tests on the emulated GPU find each of them?

    tools/checks/check_cuda_bugs.py [-j JOBS] [--build FOLDER ...] [--trust] [NUMBER ...]

For a bug of a kernel (numbers from 1 on) its file is compiled, with two or three sizes of heads, and its test runs in
all three orders of lanes and warps; where that finds nothing, once more with AddressSanitizer. For a bug of the host's
code (numbers from 201 on) its file is compiled and linked with the rest of a build folder of Ninja's that has the
target tests_cuda (build, then build-asan), and the test runs that the table names. A test that fails without a bug
finds none. Prints which test found each bug and how; exits with 1 if one was not found.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOST_FOLDER = ROOT / "src/engine/backend/cuda"
KERNELS = "src/engine/backend/cuda/kernels"
PROMPT, DECODE, ATTENTION = "attention_prompt.inc", "attention_decode.inc", "attention.inc"
ROWS, PLACE, VOTES, ARGS = "rows.inc", "place.inc", "votes.inc", "cuda_args.h"
CODES, PAGES, EXPERTS, STATES = "codes.inc", "pages.inc", "experts.inc", "states.inc"
PICK, WGMMA, EXACT = "pick.inc", "attention_wgmma.inc", "attention_exact.inc"
CHUNKS, BLOCKS, JOIN = "scan_chunks.inc", "scan_blocks.inc", "join.inc"
ARRIVED = "skv_sync(); /* the tile is there, and the other stage is free */"
TESTS = {PROMPT: "prompt", DECODE: "decode", ATTENTION: "prompt", WGMMA: "wgmma", EXACT: "exact", ROWS: "rows",
         PLACE: "place", VOTES: "votes", CODES: "codes", PAGES: "pages", EXPERTS: "experts", STATES: "states",
         PICK: "picks", JOIN: "rows", CHUNKS: "states", BLOCKS: "states"}  # of kernels; prompt, decode, wgmma and exact are parts of attention's
SCORES = "        skv_wgmma_wait(1); /* for the scores */\n"
SUMS = "        skv_wgmma_wait(0); /* for the values */\n"
HOLD_SCORES, HOLD_SUMS = "        skv_wgmma_hold(x.s, KEYS / 8);\n", "        skv_wgmma_hold(x.o, DH / 8);\n"
LEAVE_KEYS = "        if (!CODED) FN(wgmma_leave)(at->keys_free + stage);\n"
LEAVE_VALUES, TURN = "        FN(wgmma_leave)(at->values_free + before);\n", "        FN(wgmma_turn)(&x);\n"
BUGS = [  # of kernels: (the fault, the file, what is replaced, by what, the test if it is not that of the file)
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
     "return (run > merge ? run : merge) - 16;", "decode"),
    ("a portion without its sink", ATTENTION, "sum = skv_sink(a.sinks, head, most)", "sum = 0", "decode"),
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
    ("votes overwrite queries that are read", VOTES,
     "        skv_sync();\n        vote_queries", "        vote_queries"),
    ("votes of the first token's window", VOTES, "a->first + j + 1", "a->first + 1"),
    ("levels are read before they are there", CODES, "& 0xffu);\n    skv_sync();", "& 0xffu);"),
    ("sums of warps are read without a barrier", CODES, "= c[j][i];\n        }\n    }\n    skv_sync();",
     "= c[j][i];\n        }\n    }"),
    ("the second product has the first one's columns", CODES, "x.at[i], x.at[i + 1]", "x.at[0], x.at[1]"),
    ("the scale of the group before", CODES, "(k >> w->scale_shift)", "((k - (k > 0)) >> w->scale_shift)"),
    ("mins without their fine factor", CODES, "min *= -(float)w->fine_min[place]", "min = -min"),
    ("nibbles in the other order", CODES, "eight >> 4 * j & 15u", "eight >> 4 * (j ^ 1) & 15u"),
    ("rows of x beyond the last are read", CODES, "j * 8 + row < a.M ? a.x", "1 ? a.x"),
    ("columns beyond the last are written", CODES, "if (n >= a.N) continue;", ""),
    ("rows of codes beyond the last are read", CODES, "n0 + row + 8 < last ? n0 + row + 8 : last", "n0 + row + 8"),
    ("shared memory of sums is too small", ARGS,
     "SKV_CUDA_FEW_SHARED = 64 + 4", "SKV_CUDA_FEW_SHARED = 64 + 3", "codes"),
    ("rows that stay come from the page before", PAGES, "job.from[row / SKV_CUDA_PAGE_ROWS]",
     "job.from[(row - (row > 0)) / SKV_CUDA_PAGE_ROWS]"),
    ("scales of rows that stay are left", PAGES, "to[half + at] = from[half + old];", ""),
    ("the scales of values are those of keys", PAGES, "(2 * job.head_dim + scale)", "(2 * job.head_dim)"),
    ("a row that turns keeps its value's scale", PAGES, "to[scales + row] = from[scales + old];", ""),
    ("a row that turns goes to the first page", PAGES, "a.to[row / SKV_CUDA_PAGE_ROWS]", "a.to[0]"),
    ("rows that do not move are turned", PAGES, "if (!a.moves[i])", "if (0)"),
    ("an expert is chosen twice", EXPERTS, "if (at % 32 == threadIdx.x) left[at] = 0;", ""),
    ("of equal experts the last is chosen", EXPERTS,
     "other == most && other_at < at", "other == most && other_at > at"),
    ("counts of pairs without a barrier", EXPERTS, "= own;\n    skv_sync();", "= own;"),
    ("pairs behind the first 32 begin anew", EXPERTS, "        place += n;\n", ""),
    ("tiles of experts that overlap", EXPERTS, "a->first[e] / m + e", "a->first[e] / m"),
    ("rows beyond an expert's last are read", EXPERTS, "r < m && place < tile->end", "r < m"),
    ("columns beyond a row are read", EXPERTS, "k < a->K && r < m", "r < m"),
    ("no barrier after the wait for a portion", EXPERTS, "skv_sync(); /* portion p", "/* portion p"),
    ("a wait that leaves a portion", EXPERTS, "wait(SKV_CUDA_EXPERT_STAGES - 2)", "wait(SKV_CUDA_EXPERT_STAGES - 1)"),
    ("up has the codes of gate", EXPERTS, "column >= e->n_first;", "0;"),
    ("unpacked tiles are those of the first expert", EXPERTS, "(expert - a->first_expert) * a->n_tiles", "0"),
    ("each piece of weights is the first", EXPERTS, "(a->first_tile + blockIdx.x) * 64", "blockIdx.x * 64"),
    ("few rows beyond an expert's last are read", EXPERTS, "if (place >= tile->end) continue;", ""),
    ("levels of experts have too little room", ARGS, "SKV_CUDA_FEW_SHARED + 64", "SKV_CUDA_FEW_SHARED", "experts"),
    ("another swizzle when weights are read", EXPERTS, "2 * k + lane / 8 % 2", "2 * k + (lane / 8 + 1) % 2"),
    ("a convolution sees the sequence before", STATES, "back < a.n_taps && back <= span.n_past", "back < a.n_taps"),
    ("a convolution keeps a row too few", STATES, "left <= a.ring_rows", "left < a.ring_rows"),
    ("S of the sequence before", STATES, "column < a->value_dim && has_state(v)", "column < a->value_dim"),
    ("S has rows that may be taken back", STATES, "v.settles - v.span.n_undo : 0", "v.settles : 0"),
    ("keys are read before they are there", STATES, "skv_sync(); /* and these are there */", ""),
    ("keys are overwritten before they are read", STATES, "skv_sync(); /* the rows before have been read */", ""),
    ("a kept row with another's write", STATES, "gates[a->n_value_heads + h]", "gates[h]"),
    ("tiled heads by groups", STATES, "a->tiled ? h % a->n_key_heads : h / group", "h / group"),
    ("columns beyond a head's are written", STATES, "lane % 4 != 0 || column >= a->value_dim", "lane % 4 != 0"),
    ("shared memory of a scan is too small", ARGS, "(40 + 8) * 4 + 4 * 32", "(40 + 8) * 4 + 4 * 24", "states"),
    ("S before the chunks goes on behind them", STATES, " || (!v->is_before && v->chunks_end > v->begin)", ""),
    ("S before the chunks is lost", STATES, "if (v.is_before || v.settles", "if (v.settles"),
    ("chunks have rows that may be taken back", STATES, "end = v->settles;", "end = v->span.n_past + v->span.n;"),
    ("a short end of a chunk is a part", STATES, "if (rest < SKV_CUDA_SCAN_FEW) end -= rest;", ""),
    ("a chunk comes before the last one is read", CHUNKS, "skv_sync(); /* the chunk before has been read */", ""),
    ("keys of a chunk are read too early", CHUNKS, "skv_sync(); /* keys and gates are there */", ""),
    ("queries of a chunk are read too early", CHUNKS, "skv_sync(); /* and queries */", ""),
    ("blocks of a chunk are read too early", CHUNKS, "skv_sync(); /* and blocks */", ""),
    ("keys of the rows behind a chunk's last", CHUNKS, ": r < n;", ": 1;"),
    ("S of the sequence before a chunk", CHUNKS, "there && v->span.n_past > 0", "there"),
    ("columns of S beyond a head's", CHUNKS, "d < a->key_dim && own < a->value_dim", "d < a->key_dim"),
    ("a chunk keeps S as it was", CHUNKS, "x->s[t][i] *= shrinks;", ";"),
    ("rows that read nothing of their chunk", CHUNKS, "multiply_block(&y[2 * i], hi, lo, c->reads, block);", ";"),
    ("errors of the block before alone", CHUNKS, "for (uint32_t i = b + 1; i < 4; i++) {", "for (uint32_t i = b + 1; i < b + 2; i++) {"),
    ("alphas of a chunk without a barrier", BLOCKS, "g.beta;\n    skv_sync_warp();", "g.beta;"),
    ("A is inverted before it is there", BLOCKS, "skv_sync_warp(); /* A is there */", ""),
    ("the decay of blocks between is left", BLOCKS, "for (uint32_t b = j / 16 + 1; b < i / 16; b++) decay *= c->whole[b];", ""),
    ("rows behind a chunk's last forget all", BLOCKS, "g.alpha = 1, g.beta = 0;", "g.alpha = 0, g.beta = 0;"),
    ("S is multiplied as bf16", BLOCKS, "        skv_mma_bf16(c[t], lo, b[2 * t], b[2 * t + 1]);\n", ""),
    ("blocks are multiplied as bf16", BLOCKS, "skv_mma_bf16(c[t], hi, b_lo[2 * t], b_lo[2 * t + 1]);", ";"),
    ("a row does not read what it has written", BLOCKS, "j <= i ? decay_between", "j < i ? decay_between"),
    ("rows of blocks meet in a bank", BLOCKS, "(c ^ (r >> 2 & 1))", "c"),
    ("shared memory of chunks is too small", ARGS, "key_most * 2 + (uint32_t)sizeof", "key_most * 2 - 16 + (uint32_t)sizeof", "states"),
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
    ("shared memory of picks is too small", ARGS, "(SKV_CUDA_PICK_WAYS + 1) * 8", "SKV_CUDA_PICK_WAYS * 8", "picks"),
    ("tiles of wgmma without their proxy fence", WGMMA, "skv_fence_proxy();", ""),
    ("tiles of wgmma are told of too early", WGMMA, "skv_cp_async_wait(0);\n", "\n"),
    ("barriers are used before they are made", WGMMA, "skv_sync();\n    /* A thread", "/* A thread"),
    ("keys of wgmma are read too early", WGMMA, "skv_phases_wait(at->keys_there + stage, t / STAGES % 2);", ""),
    ("values of wgmma are read too early", WGMMA,
     "skv_phases_wait(at->values_there + before, (t - 1) / STAGES % 2);", ""),
    ("queries of wgmma are read too early", WGMMA, "skv_phases_wait(at->queries_there, 0);", ""),
    ("the wrong phase of a free tile", WGMMA, "(t / STAGES + 1) % 2", "t / STAGES % 2"),
    ("the wrong phase of keys", WGMMA, "keys_there + stage, t / STAGES % 2",
     "keys_there + stage, (t / STAGES + 1) % 2"),
    ("the phase before of values", WGMMA, "(t - 1) / STAGES % 2", "(t + 1) / STAGES % 2"),
    ("a phase ends one warp too early", WGMMA, "keys_free + i, ROWS / 16)", "keys_free + i, ROWS / 16 - 1)"),
    ("keys are free before scores are there", WGMMA,
     SCORES + HOLD_SCORES + LEAVE_KEYS, LEAVE_KEYS + SCORES + HOLD_SCORES),
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
    ("a descriptor with swizzle of 64 bytes", ATTENTION, "(uint64_t)1 << 62", "(uint64_t)2 << 62", "wgmma"),
    ("a descriptor without swizzle", ATTENTION, " | (uint64_t)1 << 62", "", "wgmma"),
    ("tiles of wgmma without swizzle", WGMMA, "(((c) ^ (r)) & 7)", "((c) & 7)"),
    ("values beyond the end reach wgmma", WGMMA, "row0 + r < v->end", "1"),
    ("a page beyond the table", WGMMA, "skv_least(first, v->end - 1)", "(first)"),
    ("scores beyond the end are not masked", WGMMA, "row + KEYS > v->first_sees", "row > v->first_sees"),
    ("a warpgroup with the other's queries", WGMMA, "* (64 * 128)", "* (32 * 128)"),
    ("values have the scales of keys", WGMMA, "scales[KEYS + n", "scales[n"),
    ("scales are free before they are read", WGMMA,
     "if (!CODED) FN(wgmma_leave)(at->keys_free + stage);",
     "FN(wgmma_leave)(at->keys_free + stage);"),
    ("sums do not shrink", WGMMA, "x->o[d][i] *= x->shrink[i / 2]", "x->o[d][i] *= 1"),
    ("weights are read before they are there", EXACT, "= weight;\n    skv_sync_warp();", "= weight;"),
    ("values are those of keys", EXACT, "(SKV_CUDA_PAGE_ROWS + (row + i)", "((row + i)"),
    ("a row behind the last is added", EXACT, "row + i >= end", "row + i > end"),
    ("elements behind a head's last are written", EXACT,
     "if (lane + 32 * j >= Dh) continue;\n            skv_store1", "skv_store1"),
    ("shared memory of wgmma is too small", ARGS, "(1 + 4 * stages) * 8", "4 * stages * 8", "wgmma"),
    ("a norm of numbers that another warp has left", JOIN, "from = threadIdx.x * 8", "from = (threadIdx.x ^ 32) * 8"),
    ("half of a row is left as it was", JOIN, "stride = 256 * 8", "stride = 512 * 8"),
    ("sums of experts end a row too early", EXPERTS, "i = from; i < a->n; i += stride", "i = from; i + 8 < a->n; i += stride"),
    ("up has the bias of gate", ROWS, "a->bias, a->n + i, 2 * a->n", "a->bias, i, a->n"),
    ("a bias is read beyond its end", ROWS, "at + j < end ? bias[at + j] : 0.0f", "bias[at + j]"),
]
BACKEND, RANKS, GRAPHS, LAYERS = "test_cuda_backend", "test_cuda_ranks", "test_cuda_graphs", "test_cuda_layers"
LAUNCHES = "test_cuda_launches"
OPERATIONS, ORACLE, METHODS, WEIGHTS = "*operations*", "*oracle* 1/2", "*methods*", "*weights*"
SOME = {  # operations that are tried first for a bug of a file, before all of them
    "cuda_steps.c": "sets embed place attention pick", "cuda_pages.c": "pages attention",
    "cuda_moves.c": "turn compact", "cuda_areas.c": "memory rows saved_rows", "cuda_upload.c": "linear",
    "cuda_device.c": "memory rows",
    "cuda_attention.c": "attention votes place", "cuda_linear.c": "linear", "cuda_weights.c": "linear place",
    "cuda_states.c": "states", "cuda_experts.c": "experts", "cuda_picks.c": "pick", "cuda_blas.c": "linear",
    "cuda_rows.c": "rows saved_rows embed embed_gate", "cuda_backend.c": "linear votes pick"}
HOST = [  # of the host: (the fault, the file, what is replaced, by what, program, its arguments)
    ("a description is overwritten as it is read", "cuda_steps.c",
     "skv_cuda_settle(&skv_cuda_of(base)->device);\n    describe",
     "describe", BACKEND, OPERATIONS),
    ("chosen rows are overwritten as they are read", "cuda_steps.c",
     "skv_cuda_settle(&be->device);\n    leave_rows", "leave_rows", BACKEND, OPERATIONS),
    ("rows begin anew in each step", "cuda_steps.c", ".place = (uint32_t)(span->n_past + i)", ".place = (uint32_t)i",
     BACKEND, OPERATIONS),
    ("the angles of two tables overlap", "cuda_steps.c", "at += 2 * n_bytes", "at += n_bytes", BACKEND, OPERATIONS),
    ("a description without its last bytes", "cuda_steps.c", "step->host, l.described)",
     "step->host, l.described - 64)",
     BACKEND, OPERATIONS),
    ("gathered rows go to the beginning of an area", "cuda_steps.c",
     "x.area->other + ((unsigned char *)was.at - x.area->at)",
     "x.area->other", BACKEND, OPERATIONS),
    ("the first id of a table is forgotten", "cuda_steps.c", "(uint32_t)table->first_id", "0", BACKEND, OPERATIONS),
    ("pages of a bundle in the one before", "cuda_pages.c", "bundle * slots->spec.max_pages",
     "bundle * (slots->spec.max_pages - 1)", BACKEND, OPERATIONS),
    ("a stale table of pages", "cuda_pages.c", "pages_at(table->slots, bundle) + first,",
     "pages_at(table->slots, bundle),",
     BACKEND, OPERATIONS),
    ("lost rows of another track", "cuda_pages.c", "table->dropped + track0,", "table->dropped,", BACKEND, OPERATIONS),
    ("pages that are read over each other", "cuda_pages.c", "(unsigned char *)host + i * pool->page_bytes",
     "(unsigned char *)host", BACKEND, OPERATIONS),
    ("rows of an area without what lies between", "cuda_areas.c", "host_row(m, i),\n                     n * size",
     "host_row(m, 0),\n                     n * size", BACKEND, OPERATIONS),
    ("bf16 rows that grow into themselves", "cuda_areas.c", "(size == 2 ? 2 * n : 0)", "(size == 2 ? n : 0)",
     BACKEND, OPERATIONS),
    ("moving rows: the second page is the one behind", "cuda_moves.c", "last = p * (n - 1)", "last = p * n",
     BACKEND, OPERATIONS),
    ("which rows turn is not told", "cuda_moves.c", "(2 * n_numbers + SKV_PAGE_ROWS)", "(2 * n_numbers)",
     BACKEND, OPERATIONS),
    ("turns of another job", "cuda_moves.c", "a->from_position == b->from_position &&", "", BACKEND, OPERATIONS),
    ("compacted rows: pages of the job before", "cuda_moves.c", "b->n_used += n * sizeof *list;", "b->n_used += 4;",
     BACKEND, OPERATIONS),
    ("a piece is filled as it is sent", "cuda_upload.c",
     "skv_cuda_event_wait(upload->device, upload->read[upload->i]);", "", BACKEND, OPERATIONS),
    ("a thread without the context", "cuda_launch.c", "d->failed == SKV_OK && d->api.context_set(d->context) == 0",
     "d->failed == SKV_OK", BACKEND, "*states*"),
    ("results are read before they are there", "cuda_device.c",
     "skv_cuda_begin_get(d, host, from, n_bytes);\n    skv_cuda_settle(d);",
     "skv_cuda_begin_get(d, host, from, n_bytes);",
     BACKEND, OPERATIONS),
    ("portions beside prompts", "cuda_attention.c", "of->n_prompt > 0 || n < 2", "n < 2", BACKEND, OPERATIONS),
    ("portions without the last one", "cuda_attention.c", "(uint32_t)skv_ceil_div(n_pages, args->n_pages)",
     "(uint32_t)(n_pages / args->n_pages)", BACKEND, OPERATIONS),
    ("a stale list of blocks", "cuda_attention.c", "of->serial == step->serial &&", "", BACKEND, OPERATIONS),
    ("a list of blocks of another set", "cuda_attention.c", "of->set == which &&", "", BACKEND, ORACLE),
    ("prompts have the blocks of answers", "cuda_attention.c", "of->at + of->n_decode;", "of->at;",
     BACKEND, OPERATIONS),
    ("joined norms of q and k share memory", "cuda_attention.c", "be->product + be->n_product / 2", "be->product",
     BACKEND, OPERATIONS),
    ("votes for too few pages", "cuda_attention.c", "item->n_past + a->first + a->n", "item->n_past + a->n",
     BACKEND, OPERATIONS),
    ("keys of another slot", "cuda_attention.c", "slots->spec.track0[slot],", "slots->spec.track0[0],",
     BACKEND, OPERATIONS),
    ("mins of the first rows", "cuda_linear.c", "if (c.mins) c.mins += row * c.n_scales;", "", BACKEND, OPERATIONS),
    ("the bias of another part", "cuda_linear.c", "w->bias + s.run->row0 + s.row", "w->bias + s.row",
     BACKEND, OPERATIONS),
    ("numbers behind a row's end", "cuda_linear.c", "? 0 : w->ld - w->K", "? 0 : 0", BACKEND, OPERATIONS),
    ("rows of a list begin anew", "cuda_linear.c", ".list = list ? list + i : NULL", ".list = list",
     BACKEND, OPERATIONS),
    ("a product of e4m3 after it was refused", "cuda_linear.c", "return !be->no_fp8 &&", "return", BACKEND, WEIGHTS),
    ("the first rows are unpacked again", "cuda_linear.c", "s.row + i)", "s.row)", BACKEND, OPERATIONS),
    ("biases of all parts at the first one", "cuda_weights.c", "w->bias + w->first[i], part->bias",
     "w->bias, part->bias",
     BACKEND, OPERATIONS),
    ("parts of several forms in one run", "cuda_weights.c", "one.kind == other.kind &&", "", BACKEND, OPERATIONS),
    ("pieces over each other", "cuda_weights.c", "p->to[s] + p->row0 * p->row_bytes[s]", "p->to[s]",
     BACKEND, OPERATIONS),
    ("scales of e4m3 by the wrong group", "cuda_weights.c", "? ROW_SHIFT : shift_of(group)",
     "? ROW_SHIFT : shift_of(group) + 1",
     BACKEND, WEIGHTS),
    ("columns of a convolution", "cuda_states.c", "p->conv + a->column0", "p->conv", BACKEND, "*states*"),
    ("a state that is too new is taken", "cuda_states.c", "settled > n_past || n_past - settled > states->max_undo",
     "0",
     BACKEND, OPERATIONS),
    ("inputs that are kept of one row", "cuda_states.c", "(uint32_t)skv_max_size(args.max_undo, 1)", "1",
     BACKEND, OPERATIONS),
    ("the layer of a state", "cuda_states.c", ".layer = (uint32_t)a->layer", ".layer = 0", BACKEND, "*states*"),
    ("too few tiles of experts", "cuda_experts.c", "n_pairs / m + n)", "n_pairs / m + 1)", BACKEND, OPERATIONS),
    ("experts' rows begin anew", "cuda_experts.c", "args->begin = args->x_first = (uint32_t)i",
     "args->begin = (uint32_t)i",
     BACKEND, OPERATIONS),
    ("wishes are overwritten as they are read", "cuda_picks.c", "skv_cuda_settle(&be->device);\n        be->n_wishes",
     "be->n_wishes", BACKEND, OPERATIONS),
    ("numbers of the pick before", "cuda_picks.c", "picks->device_at + picks->n_at", "picks->device_at",
     BACKEND, OPERATIONS),
    ("picks that stay of the step before", "cuda_picks.c", "picks->there = false;", "", BACKEND, OPERATIONS),
    ("candidates as they come", "cuda_picks.c", "qsort(picks->top", "(void)by_rank; if (0) qsort(picks->top",
     BACKEND, OPERATIONS),
    ("copies that do not wait for another GPU", "cuda_sums.c",
     "if (i != own) skv_cuda_event_follow(&be->device, sums->parts[i].written);", "", RANKS, ""),
    ("sums that do not wait for copies", "cuda_sums.c",
     "skv_cuda_event_follow(&be->device, be->sums.parts[i].read);", "",
     RANKS, ""),
    ("sums in the order of arrival", "cuda_sums.c", "be->product + i * n_rows * n",
     "be->product + (i + be->limits.ranks.rank) % be->limits.ranks.n * n_rows * n", RANKS, ""),
    ("products of another length of rows", "cuda_blas.c", "a->ld_y == b->ld_y &&", "", BACKEND, OPERATIONS),
    ("products that add nothing", "cuda_blas.c", "&& a->add == b->add", "", BACKEND, OPERATIONS),
    ("rows that are loaded begin anew", "cuda_rows.c", "host + i * n_bytes, n_rows * n_bytes);\n        skv_cuda_move",
     "host, n_rows * n_bytes);\n        skv_cuda_move", BACKEND, OPERATIONS),
    ("embeddings of a layer: all rows", "cuda_rows.c", ".rows = set->rows,\n                                       .op",
     ".op", BACKEND, OPERATIONS),
    ("room for sums of votes: one head", "cuda_backend.c", "r.norms = r.rows * l->max_heads", "r.norms = r.rows",
     BACKEND,
     OPERATIONS),
    ("a launch overtakes the one that is held", "cuda_held.c", "    skv_cuda_release(d);\n    skv_cuda_graphs_launch(d, kernel", "    skv_cuda_graphs_launch(d, kernel",
     LAUNCHES, "*held*"),
    ("a product overtakes the launch that is held", "cuda_device.c", "    skv_cuda_release(d);\n    if (!skv_cuda_is_ready",
     "    if (!skv_cuda_is_ready", LAUNCHES, "*join*"),
    ("results overtake the launch that is held", "cuda_held.c", "    skv_cuda_release(d);\n    skv_cuda_graphs_end", "    skv_cuda_graphs_end",
     LAUNCHES, "*held*"),
    ("other rows join", "cuda_held.c", "args->x.at == l->rows.at &&", "", LAUNCHES, "*held*"),
    ("some of the rows join", "cuda_held.c", "held->grid.x == n_rows &&", "", LAUNCHES, "*held*"),
    ("a sum joins as gated products", "cuda_held.c", "both.kind = l.kind", "both.kind = SKV_CUDA_FIRST_GLU", LAUNCHES, "*join*"),
    ("no bias is added", "cuda_linear.c", "biased ? a->w->bias + p->first : NULL", "NULL", BACKEND, OPERATIONS),
    ("a row of logits has no room", "cuda_backend.c", "skv_round_up(l->vocab, 8));", "8);", BACKEND, OPERATIONS),
    ("all ranks have one communicator", "cuda_sums.c", "= comms[ranks->rank]", "= comms[0]", RANKS, ""),
    ("a sum of one row", "cuda_sums.c", "at, at, n_rows * n, SKV", "at, at, n, SKV", RANKS, ""),
    ("a recording of other arguments", "cuda_graphs.c", "if (memcmp(r->list, g->list, g->n_bytes) == 0) return r;",
     "return r;", GRAPHS, "*steps*"),
    ("the list of a recording is written anew", "cuda_graphs.c",
     "    g->list = list;\n    g->n_recorded", "    g->n_recorded",
     GRAPHS, "*steps*"),
    ("a list that was never seen is recorded", "cuda_graphs.c", "!r && was_seen(g)", "!r", GRAPHS, "lists*"),
    ("a driver that refuses is asked again", "cuda_graphs.c", "        g->off = true;\n", "", GRAPHS, "a_driver*"),
    ("work comes before launches that are listed", "cuda_device.c",
     "static bool begin(skv_cuda_device *d)\n{\n    skv_cuda_flush(d);",
     "static bool begin(skv_cuda_device *d)\n{",
     GRAPHS, "lists*"),
    ("blocks of a list are overwritten", "cuda_attention.c",
     "if (of->used == skv_cuda_graphs_number(&be->device)) skv_cuda_flush(&be->device);", "", GRAPHS, "*steps*"),
    ("both have what one has written", "../split/split_areas.c", "area->valid = skv_split_bit(side);",
     "area->valid = SKV_SPLIT_BOTH;", LAYERS, ""),
    ("rows are compacted on the first device alone", "../split/split_pages.c",
     "            if (!(sides & skv_split_bit(s))) continue;\n            be->of[s]->pages_compact",
     "            if (s > 0) continue;\n            be->of[s]->pages_compact", LAYERS, ""),
    ("keys stay where the queries are", "../split/split_attention.c",
     "sides |= args->step->slots->slot_sides[args->slot]",
     "sides = sides ? sides : args->step->slots->slot_sides[args->slot]", LAYERS, ""),
    ("a neighbour decides the kernel of attention", "cuda_attention.c",
     "const bool few = n_pairs <= SKV_CUDA_DECODE_ROWS;",
     "const bool few = n_pairs <= SKV_CUDA_DECODE_ROWS && all_are_few(set, n_group);", GRAPHS, "rows_depend*"),
]
FLAGS = "-std=c11 -D_POSIX_C_SOURCE=200809L -O1 -w -fno-common".split()
MODES = {"": [], "asan": ["-g1", "-fsanitize=address"]}  # the first one is several times as fast
LIBRARY = ["src/base/rng.c", "src/engine/kernels/experts.c", "src/engine/kernels/kv_page.c",
           "src/engine/kernels/ref/logits_ref.c"]
ROOMS = ["src", "src/engine", "src/base", "tests/support"]  # where headers are found
FILES = ("rows pick codes experts join states place attention votes pages attention_exact "
         "scan_blocks scan_chunks").split()  # in this order
SIZES = {"prompt": (80, 256), "decode": (80, 256), "wgmma": (64, 128, 256)}  # of heads
KERNEL = "#undef SKV_KERNEL\n#define SKV_KERNEL(name, type, threads, blocks) {} void name(const type a)\n"
PART_OF = {"picks": "pick", "exact": "attention_exact"}  # of tests that have another name
MORE_PARTS = {"rows": ["join"], "states": ["scan_blocks", "scan_chunks"]}  # of tests that run kernels of several files
# Tests end with the first wrong result, and run the kinds of attention that are asked for.
CHANGES = {
    "cuda_case.c": [('    printf("%s: ', '    fail("%s: ')],
    "check_cuda_kernels_attention.c": [
        ("for (int few = 0; few < 2; few++) {", 'for (int few = 0; few < 2; few++) {\n        '
         'if (!is_asked(few ? "decode" : "prompt")) continue;'),
        ("            check_kernels(", "            if (dims[i] == 80 || dims[i] == 256) check_kernels("),
        ("        check_exact(c, dims", '        if (is_asked("exact")) check_exact(c, dims'),
        ("if (device_has_wgmma())", 'if (is_asked("wgmma"))')],
}
BEFORE = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define fail(...) (printf(__VA_ARGS__), fflush(stdout), exit(1))
#define is_asked(kind) (getenv("SKV_KIND") && strcmp(getenv("SKV_KIND"), kind) == 0)
"""
TABLE = """#include "emulated_kernels.h"
#define X(name, args, n) __attribute__((weak)) void name(args); \\
    static void run_##name(const void *p) { name(*(const args *)p); }
SKV_CUDA_KERNELS(X)
#undef X
const emu_kernel emu_kernels[SKV_CUDA_KERNEL_COUNT] = {
#define X(name, args, n) {run_##name, n, sizeof(args), #name},
    SKV_CUDA_KERNELS(X)
};
"""


# ---- kernels: a program of a few objects, of which a bug changes one or two ----

def included(part):
    keys = ("#define KD 128\n", "#define KD 256\n") if part == "scan_chunks" else ("",)
    return "".join(f'{key}#include "{part}.inc"\n' for key in keys)


def part_source(part):
    """A file with the kernels of FILES' `part`, or of attention of a kind, which needs those before it."""
    own = part in FILES
    before = FILES[:FILES.index(part) if own else FILES.index("attention") + 1]
    text = '#include "emulator.h"\n' + KERNEL.format("static __attribute__((unused))")
    text += "".join(included(name) for name in before) + KERNEL.format("")
    if own:
        return text + included(part)
    for size in SIZES[part]:
        for kind in ("bf16", "fp8", "int8"):
            text += (f"#define DH {size}\n#define KV SKV_CUDA_KV_{kind.upper()}\n#define KV_NAME {kind}\n"
                     f'#include "attention_{part}.inc"\n#undef DH\n#undef KV\n#undef KV_NAME\n')
    return text


def make_sources(folder):
    """The tests' files with CHANGES, and the parts."""
    shutil.copytree(ROOT / "tests/cuda", folder, ignore=shutil.ignore_patterns("*.py", "*.txt"))
    for name, changes in CHANGES.items():
        text = (folder / name).read_text()
        for old, new in changes:
            if old not in text:
                sys.exit(f"tests/cuda/{name}: there is no \"{old}\"")
            text = text.replace(old, new)
        (folder / name).write_text(BEFORE + text)
    (folder / "emulated_table.c").write_text(TABLE)
    for part in [*FILES, *SIZES]:
        (folder / f"part_{part}.c").write_text(part_source(part))
    checks = sorted(path.name for path in folder.glob("check_cuda_kernels_*.c"))
    return [*checks, "test_cuda_kernels.c", "cuda_case.c", "device_emulated.c", "emulator.c", "emulated_table.c",
            *(f"part_{part}.c" for part in FILES)]


def compile_kernels(sources, out, name, mode, first=None):
    """Compiles one of `sources`, or of the library; headers and kernels in the folder `first` come first."""
    where = [first, ROOT] if first else [ROOT]
    rooms = [f"-I{base / room}" for base in where for room in [*ROOMS, KERNELS]] + [f"-I{sources}"]
    made = out / (Path(name).stem + ".o")
    subprocess.run(["gcc", *FLAGS, *(["-O2"] if name == "emulator.c" else []), *MODES[mode], *rooms, "-c", "-o", made,
                    ROOT / name if "/" in name else sources / name], check=True)
    return made


def parts_of(bug, test):
    """The objects that a bug changes."""
    part = PART_OF.get(test, test)
    names = {f"part_{name}.c" for name in [part, *MORE_PARTS.get(part, [])]}
    if bug and bug[1][:-4] in FILES:
        names.add(f"part_{bug[1][:-4]}.c")
    if bug and bug[1] == ARGS:
        check = "attention" if part in SIZES or part in ("votes", "attention_exact") else part
        names |= {f"check_cuda_kernels_{check}.c", "device_emulated.c"}
    return names


def try_kernels(bug, test, mode, common):
    """(whether the tests passed, what they printed), or None: it was not planted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if bug:
            (folder / KERNELS).mkdir(parents=True)
            shutil.copy(ROOT / KERNELS / bug[1], folder / KERNELS)
            if not plant(folder / KERNELS / bug[1], bug):
                return None
        new = {one.name: one for one in (compile_kernels(common.sources, folder, each, mode, folder)
                                         for each in sorted(parts_of(bug, test)))}
        old = [one for one in common.objects(mode) if one.name not in new]
        subprocess.run(["gcc", *MODES[mode], "-o", folder / "test", *new.values(), *old, "-lcmocka", "-lm"], check=True)
        pattern = "*attention*" if test in SIZES or test == "exact" else f"*{test}*"
        return run(folder / "test", [pattern], {"SKV_KIND": test})


class Common:
    """What bugs have in common: kernels without one, compiled once for each mode, and which tests pass without one."""

    def __init__(self, folder, trust):
        self.folder, self.sources, self.made, self.lock = folder, folder / "sources", {}, threading.Lock()
        self.names = make_sources(self.sources)
        self.sound, self.trying, self.trust = {}, threading.Lock(), trust

    def is_sound(self, test, without):
        if self.trust:
            return True
        with self.trying:
            if test not in self.sound:
                passed, text = without()
                self.sound[test] = passed
                if not passed:
                    print(f"{test[0]} fails without a bug:\n{text[-2000:]}", flush=True)
            return self.sound[test]

    def objects(self, mode):
        with self.lock:
            if mode not in self.made:
                out = self.folder / f"objects{mode}"
                out.mkdir()
                self.made[mode] = [compile_kernels(self.sources, out, name, mode) for name in [*self.names, *LIBRARY]]
            return self.made[mode]


# ---- the host: a program of a build folder, with one object more ----

def commands(build, source, program):
    """How a build folder compiles a file, and links a program."""
    entries = json.loads((build / "compile_commands.json").read_text())
    compiled = [entry["command"] for entry in entries if entry["file"] == str(source)]
    linked = subprocess.run(["ninja", "-t", "commands", "-s", f"tests/{program}"], cwd=build, check=True,
                            capture_output=True, text=True).stdout.splitlines()[-1]
    return compiled[0], linked


def try_host(bug, build, some):
    """As try_kernels. Without a bug: a program and its arguments. `some`: which operations, or None."""
    program, words = bug[-2:]
    environment = {"SKV_CUDA_IMAGE": str(ROOT / KERNELS / "kernels.cu"),
                   "LD_LIBRARY_PATH": f"{build}/tests/fake_cuda:{build}/tests/fake_nccl"}
    if some:
        environment["SKV_CHECK_SOME"], environment["SKV_CHECK_SEEDS"] = f" {some} ", "16"
    if len(bug) == 2:
        return run(build / "tests" / program, words.split(), environment)
    source = (HOST_FOLDER / bug[1]).resolve()
    compiled, linked = commands(build, source, program)
    with tempfile.TemporaryDirectory() as name:
        copy, made = Path(name) / source.name, Path(name) / program
        shutil.copy(source, copy)
        if not plant(copy, bug):
            return None
        compiled = re.sub(r" -o \S+", f" -w -O1 -o {copy}.o", compiled).replace(str(source), str(copy))
        subprocess.run(compiled, shell=True, cwd=build, check=True)
        # An object comes before the library, which then has nothing more to add.
        linked = linked.replace(f" -o tests/{program} ", f" {shlex.quote(str(copy))}.o -o {made} ")
        subprocess.run(linked, shell=True, cwd=build, check=True)
        return run(made, words.split(), environment)


# ---- all ----

ASAN = "allocator_may_return_null=1:detect_stack_use_after_return=0:verify_asan_link_order=0"
TOO_LONG = 124
# What tests print of a result that is wrong.
WRONG = r"^[\w ]+: seed \d+ case \d+: |: off by |<-$|^\[  FAILED  \]"


def how_found(text):
    for pattern in (r"emulated GPU: (.*?) \(block", r"AddressSanitizer: ([\w-]+)",
                    r"device cuda: .*|GPU \d: .*|cu\w+: .*|Assertion `.*?'", r"^.*(?:case \d+|off by).*$"):
        if match := re.search(pattern, text, re.MULTILINE):
            return match.group(match.lastindex or 0)
    lines = [line for line in text.splitlines() if line and not line.startswith("[")]
    return lines[-1] if lines else "it ends"


def plant(path, bug):
    """False: there is no such text."""
    text = path.read_text()
    path.write_text(text.replace(bug[2], bug[3], 1))
    return bug[2] in text


def run(program, words, environment):
    """Ends the program with the first line that says that something is wrong."""
    text, wrong = "", False
    environment = {**os.environ, "ASAN_OPTIONS": ASAN, **environment}
    with subprocess.Popen(["stdbuf", "-oL", "timeout", "900", program, *words], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.STDOUT, errors="replace", env=environment) as running:
        for line in running.stdout:
            text += line
            if wrong := bool(re.search(WRONG, line)):
                running.terminate()
                break
        status = running.wait()
    return status in (0, TOO_LONG) and not wrong, text  # a machine that is busy finds nothing


def ways_of(number, common, builds):
    """The bug, the name of its test, and ways to try it: each with one that tries the test without it."""
    if number < 200:
        bug = BUGS[number - 1]
        test = bug[4] if len(bug) > 4 else TESTS[bug[1]]
        return bug, f"test_cuda_kernels {test}", [
            (lambda mode=mode: try_kernels(bug, test, mode, common),
             lambda mode=mode: try_kernels(None, test, mode, common)) for mode in MODES]
    bug = HOST[number - 201]
    tries = [(builds[0], SOME[bug[1]])] if bug[5] == OPERATIONS else []
    return bug, f"{bug[4]} {bug[5]}".strip(), [
        (lambda a=a: try_host(bug, *a), lambda a=a: try_host(bug[4:], a[0], None))
        for a in [*tries, *((build, None) for build in builds)]]


def try_number(number, common, builds):
    """(the fault, whether it was found, the test and how)"""
    bug, name, ways = ways_of(number, common, builds)
    for i, (way, without) in enumerate(ways):
        try:
            if not common.is_sound((name, i), without):
                return bug[0], False, f"{name} fails without a bug"
            tried = way()
        except subprocess.CalledProcessError as error:
            return bug[0], False, f"it is not built: {' '.join(map(str, error.cmd))[-60:]}"
        if tried is None:
            return bug[0], False, "it is not planted: the code has changed"
        if not tried[0]:
            return bug[0], True, f"{name}: {how_found(tried[1])[:80]}"
    return bug[0], False, f"{name} passes, or takes too long"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-j", type=int, default=2, help="how many at a time")
    parser.add_argument("--build", type=Path, action="append", help="a folder with the target tests_cuda")
    parser.add_argument("--trust", action="store_true", help="tests are known to pass without a bug")
    parser.add_argument("number", type=int, nargs="*", help="of a bug")
    arguments = parser.parse_args()
    builds = [path.resolve() for path in arguments.build or [ROOT / "build", ROOT / "build-asan"]]
    numbers = arguments.number or [*range(1, len(BUGS) + 1), *range(201, 201 + len(HOST))]
    with ThreadPoolExecutor(arguments.j) as threads, tempfile.TemporaryDirectory() as name:
        common = Common(Path(name), arguments.trust)
        n_good = 0
        tried = [threads.submit(lambda i=i: (i, *try_number(i, common, builds))) for i in numbers]
        for number, what, good, how in (one.result() for one in as_completed(tried)):
            print(f"{'ok' if good else 'MISSED':7} {number:3} {what:48} {how}", flush=True)
            n_good += good
    print(f"{n_good} of {len(numbers)} as they should be")
    return 0 if n_good == len(numbers) else 1


if __name__ == "__main__":
    sys.exit(main())
