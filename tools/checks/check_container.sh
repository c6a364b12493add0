#!/bin/sh
# Builds the image of deploy/Containerfile where no container service runs, and tries it: the server
# of the image answers by the file's entry point, user and health check, and ends well at SIGTERM.
#     tools/checks/check_container.sh FOLDER [MODEL]
# Needs root, buildah and debootstrap (Debian packages); nothing but a chroot is asked of the kernel.
# FOLDER keeps the base image for the next time. The base image is pulled where a registry can
# be reached; elsewhere debootstrap makes it from this machine's mirror. MODEL: models/mini/base.
set -eu

if [ $# -lt 1 ] || [ "$(id -u)" -ne 0 ]; then
    sed -n '2,7s/^# //p' "$0" >&2
    exit 2
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)
model=$(cd "${2:-$root/models/mini/base}" && pwd)
file=$root/deploy/Containerfile
base=$(sed -n 's/^FROM \([^ ]*\)$/\1/p' "$file")
port=${PORT:-8080}

b() {
    buildah --log-level error --storage-driver vfs --root "$folder/layers" --runroot "$folder/run" "$@"
}

# The base image from a mirror of Debian, with this machine's way to the packages.
bootstrap() {
    codename=bookworm
    mirror=$(apt-get indextargets --format "\$(SITE) \$(RELEASE)" 'Created-By: Packages' |
        awk -v suite="$codename" '$2 == suite { print $1; exit }')
    echo "container: $base cannot be pulled; made by debootstrap from $mirror"
    rm -rf "$folder/base"
    debootstrap --variant=minbase "$codename" "$folder/base" "$mirror" >"$folder/debootstrap.log" 2>&1
    apt-config dump | grep -i '^Acquire::\(http\|https\|ftp\|Check\)' >"$folder/base/etc/apt/apt.conf.d/90host" || true
    tar -C "$folder/base" --numeric-owner -cf "$folder/base.tar" .
    made=$(b from scratch)
    b add -q "$made" "$folder/base.tar" / >/dev/null
    b commit -q "$made" "docker.io/library/$base" >/dev/null
    b rm "$made" >/dev/null
    rm -rf "$folder/base" "$folder/base.tar"
}

b inspect --type image "$base" >/dev/null 2>&1 || b pull -q "docker.io/library/$base" 2>/dev/null || bootstrap

# What is committed, as a clone would have it.
rm -rf "$folder/context"
git clone -q --no-hardlinks "$root" "$folder/context"
cp "$file" "$folder/context/deploy/"
start=$(date +%s)
b bud --format docker --isolation chroot --pull-never --network host -t swiftkv \
    -f "$folder/context/deploy/Containerfile" "$folder/context" >"$folder/build.log" 2>&1 || {
    tail -n 20 "$folder/build.log" >&2
    exit 1
}
rm -rf "$folder/context"
echo "container: built in $(($(date +%s) - start)) s, $(b images --format '{{.Size}}' swiftkv)"

config() {
    b inspect --type image --format "$1" swiftkv
}
entry=$(config '{{range .Docker.Config.Entrypoint}}{{.}} {{end}}')
health=$(config '{{index .Docker.Config.Healthcheck.Test 3}}')
echo "container: user $(config '{{.Docker.Config.User}}'), stopped by $(config '{{.OCIv1.Config.StopSignal}}'), runs: $entry"

printf 'key-of-the-test\n' >"$folder/keys"
chmod 644 "$folder/keys"
container=$(b from swiftkv)
# shellcheck disable=SC2086 # a command and its options
b run --isolation chroot --network host -v "$model:/model:ro" -v "$folder/keys:/keys:ro" "$container" -- \
    $entry --port "$port" >"$folder/server.log" 2>&1 </dev/null &
runner=$!
server=

# The program that buildah's own processes have started.
find_server() {
    ps -e -o pid=,ppid=,comm= | awk -v top="$runner" '
        { parent[$1] = $2; if ($3 == "swiftkv") found[$1] = 1 }
        END { for (p in found) for (q = p; q > 1; q = parent[q]) if (q == top) print p }'
}

finish() {
    status=$?
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    wait "$runner" 2>/dev/null || true
    b rm "$container" >/dev/null 2>&1 || true
    [ $status -eq 0 ] || tail -n 5 "$folder/server.log" >&2
}
trap finish EXIT

fail() {
    echo "container: $*" >&2
    exit 1
}

# status PATH [curl option ...]: of an answer, whose body goes to FOLDER/answer
status() {
    path=$1
    shift
    curl -s -o "$folder/answer" -w '%{http_code}' "$@" "http://127.0.0.1:$port$path" || true
}

n=0
until [ "$(status /health)" = 200 ]; do
    n=$((n + 1))
    [ $n -lt 1500 ] || fail "no answer"
    kill -0 "$runner" 2>/dev/null || fail "the server ended"
    sleep 0.2
done
server=$(find_server)
[ "$(ps -o uid= -p "$server" | tr -d ' ')" = 10001 ] || fail "runs as another user"
[ "$(status /v1/models)" = 401 ] || fail "answers without a key"
key='Authorization: Bearer key-of-the-test'
[ "$(status /v1/models -H "$key")" = 200 ] || fail "no models"
[ "$(status /v1/completions -H "$key" -d '{"prompt":"Once upon a time","max_tokens":8}')" = 200 ] ||
    fail "no completion: $(cat "$folder/answer")"
echo "container: completion: $(cat "$folder/answer")"
if [ "$port" = 8080 ]; then
    b run --isolation chroot --network host "$container" -- bash -c "$health" || fail "the health check says no"
fi
kill -TERM "$server"
wait "$runner" || fail "status $? at SIGTERM"
server=
echo "container: health, keys, completion and SIGTERM as they should be"
