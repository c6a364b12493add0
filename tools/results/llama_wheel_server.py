#!/usr/bin/env python3
"""llama.cpp's server from the wheel of xllamacpp, with the few of its options that
tools/results/bench_serving.py, bench/speculation.py and bench/sessions.py use. The wheel is built for
AVX2: on a processor with more, build llama-server for fair figures.

    VENV/bin/python tools/results/llama_wheel_server.py -m FILE --port N [-t N] [-tb N] [-np N] [-c N] [-fa on]
                                                [-b N] [-ub N] [--cache-ram MIB] [--cache-reuse N]
                                                [--jinja] [--chat-template-file FILE] [--spec-type NAME
                                                [--spec-draft-n-max N] [-md FILE]]
"""

import argparse
import pathlib
import signal
import threading

import xllamacpp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-m")
    for name, default in (("--port", 8080), ("-t", 2), ("-tb", 2), ("-np", 1), ("-c", 0), ("-b", 2048), ("-ub", 512),
                          ("--cache-ram", 8192), ("--cache-reuse", 0)):  # fmt: skip
        parser.add_argument(name, type=int, default=default)
    parser.add_argument("-fa", choices=["on", "off"])
    parser.add_argument("--jinja", action="store_true")  # as it is anyway
    parser.add_argument("--chat-template-file", type=pathlib.Path)
    parser.add_argument("--spec-type", choices=["draft-simple", "ngram-simple", "ngram-cache"])
    parser.add_argument("--spec-draft-n-max", type=int)
    parser.add_argument("-md")
    args = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path, params.port, params.hostnames = args.m, args.port, ["127.0.0.1"]
    params.cpuparams.n_threads, params.cpuparams_batch.n_threads = args.t, args.tb
    params.n_parallel, params.n_ctx, params.n_batch, params.n_ubatch = args.np, args.c, args.b, args.ub
    params.cache_ram_mib, params.n_cache_reuse = args.cache_ram, args.cache_reuse
    if args.chat_template_file:
        params.chat_template = args.chat_template_file.read_text()
    if args.fa:
        params.flash_attn_type = (xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED if args.fa == "on" else
                                  xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED)
    if args.spec_type:
        name = "COMMON_SPECULATIVE_TYPE_" + args.spec_type.upper().replace("-", "_")
        params.speculative.types = [getattr(xllamacpp.common_speculative_type, name)]
    if args.md:
        params.speculative.draft.mparams.path = args.md
        params.speculative.draft.cpuparams.n_threads = args.t
        params.speculative.draft.cpuparams_batch.n_threads = args.tb
    if args.spec_draft_n_max is not None:
        params.speculative.draft.n_max = args.spec_draft_n_max
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    server = xllamacpp.Server(params)
    ended.wait()
    del server


if __name__ == "__main__":
    main()
