"""Other people's programs that tests run: where they are, if they are."""

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def find_program(name):
    """A program of the folder that tests/clients/requirements.txt was installed to (SKV_TEST_VENV, or
    build/venv), of the packages that script/setup unpacked, or of the path; None."""
    venv = Path(os.environ.get("SKV_TEST_VENV", ROOT / "build/venv"))
    folders = [venv / "bin", *ROOT.glob("build/unpacked/*/usr/bin"), *ROOT.glob("build/unpacked/*/usr/sbin")]
    found = (shutil.which(name, path=folder) for folder in folders)
    return next(filter(None, found), None) or shutil.which(name)


def library_path():
    """LD_LIBRARY_PATH for unpacked programs: the libraries that were unpacked with them."""
    return ":".join(map(str, ROOT.glob("build/unpacked/*/usr/lib/*-linux-gnu")))
