"""What measurements share that start servers on this machine."""

import argparse
import pathlib
import shutil
import socket
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]


def parser_for(**numbers):
    """A parser of what every such measurement is told, and of options that are whole numbers, by their defaults."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--swiftkv", default=str(ROOT / "build/swiftkv"))
    parser.add_argument("--options", default="")
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser


def prompt_of(n, seed):
    """n ids, a prompt of its own for every seed."""
    return [(i * 7919 + seed * 104729 + 11) % 3000 for i in range(n)]


def key_file(folder):
    """A key for the pages that servers put into a store."""
    key = pathlib.Path(folder) / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    return key


def store_command(port, *more):
    """The command of a store that keeps nothing on the disk."""
    return [shutil.which("redis-server") or shutil.which("valkey-server"), "--port", str(port), "--save", "", *more]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process):
    """Until a server is ready; ends the measurement if the server ends."""
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)
    sys.exit("a server has ended")
