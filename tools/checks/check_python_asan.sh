#!/bin/sh
# Runs the tests of the Python package with the extension and the library under AddressSanitizer and
# UndefinedBehaviorSanitizer, loaded into a plain interpreter.
#     tools/checks/check_python_asan.sh [PYTEST OPTION ...]
# Needs build/venv-python, which `script/test --only python` makes; the build is in build-asan, the
# package in build-asan/python-package. It ends with 77 where the environment is missing.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
cd "$root"
python=${PYTHON:-$root/build/venv-python/bin/python}
package=$root/build-asan/python-package

if [ ! -x "$python" ]; then
    echo "python asan: skipped: $python is missing: script/test --only python makes it"
    exit 77
fi
script/build asan skv_static
rm -rf "$package"
"$python" -m pip install -q --no-index --no-build-isolation --no-deps --target "$package" . \
    -C build-dir=build-asan/python -C cmake.build-type=Checked -C install.strip=false \
    -C cmake.define.SKV_LIBRARY="$root/build-asan/libskv.a" -C cmake.define.SKV_SANITIZE=address,undefined

# A plain interpreter never frees what it holds at its end, so leaks are not looked for; the test
# that counts them by resident memory, and the notebooks, which take minutes here, run without.
log=$root/build-asan/python-asan
rm -f "$log".*
status=0
env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" PYTHONPATH="$package" \
    PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:log_path="$log" UBSAN_OPTIONS=print_stacktrace=1:log_path="$log" \
    "$python" -B -m pytest -p no:cacheprovider python/tests --ignore python/tests/test_notebooks.py \
    --deselect python/tests/test_engine.py::test_opens_leak_nothing "$@" || status=1
for report in "$log".*; do
    [ -s "$report" ] || continue
    echo "python asan: $report" >&2
    head -n 60 "$report" >&2
    status=1
done
exit $status
