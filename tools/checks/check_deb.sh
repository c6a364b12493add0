#!/bin/sh
# Makes the Debian package of a build and installs, runs, upgrades, removes and purges it in a bare
# system; and builds the source tarball of `git archive` where there is no git.
#     tools/checks/check_deb.sh BUILD FOLDER
# Needs root, mmdebstrap and a mirror; nothing but a chroot is asked of the kernel. It ends with 77
# where those are missing. FOLDER keeps the bare system for the next time.
set -eu

if [ $# -ne 2 ]; then
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
port=${PORT:-18080}
server=

skip() {
    echo "deb: skipped: $*"
    exit 77
}

fail() {
    echo "deb: $*" >&2
    exit 1
}

inside() {
    chroot "$folder/root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"
}

finish() {
    status=$?
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    [ $status -eq 0 ] || [ $status -eq 77 ] || tail -n 15 "$folder"/*.log >&2
    rm -rf "$folder/root"
}
trap finish EXIT

[ "$(id -u)" -eq 0 ] || skip "a chroot needs root"
command -v mmdebstrap >/dev/null || skip "mmdebstrap is not installed"

# ---- the packages: this version, and the same as a later one ----

rm -rf "$folder/packages"
(cd "$build" && cpack -G DEB -B "$folder/packages" >"$folder/cpack.log" 2>&1) || fail "cpack failed"
package=$(find "$folder/packages" -maxdepth 1 -name '*.deb')
dpkg-deb -R "$package" "$folder/packages/later"
sed -i 's/^Version: .*/&+later/' "$folder/packages/later/DEBIAN/control"
dpkg-deb -b --root-owner-group "$folder/packages/later" "$folder/packages/later.deb" >/dev/null
echo "deb: $(basename "$package"), $(du -h "$package" | cut -f1), needs $(dpkg-deb -f "$package" Depends)"

# ---- a bare system ----

if [ ! -s "$folder/base.tar" ]; then
    mirror=$(apt-get indextargets --format "\$(SITE) \$(RELEASE)" 'Created-By: Packages' |
        awk '$2 == "bookworm" { print $1; exit }')
    mmdebstrap --variant=minbase bookworm "$folder/base.tar" "$mirror" >"$folder/bootstrap.log" 2>&1 || {
        rm -f "$folder/base.tar"
        skip "no bare system can be made here: see $folder/bootstrap.log"
    }
fi
rm -rf "$folder/root"
mkdir "$folder/root"
tar -C "$folder/root" --numeric-owner --exclude='./dev/*' -xf "$folder/base.tar"
mknod -m 666 "$folder/root/dev/null" c 1 3
mknod -m 666 "$folder/root/dev/urandom" c 1 9
apt-config dump | grep -i '^Acquire::\(http\|https\|Check\)' >"$folder/root/etc/apt/apt.conf.d/90host" || true
cp /etc/resolv.conf /etc/hosts "$folder/root/etc/"
cp "$package" "$folder/root/swiftkv.deb"
cp "$folder/packages/later.deb" "$folder/root/"
mkdir -p "$folder/root/srv/swiftkv"
cp -r "$root/models/mini/base" "$folder/root/srv/swiftkv/model"

# ---- install ----

inside apt-get update >"$folder/apt.log" 2>&1 || skip "the bare system reaches no mirror"
inside apt-get install -y --no-install-recommends /swiftkv.deb >"$folder/install.log" 2>&1 || fail "cannot be installed"
inside swiftkv --version
inside id swiftkv >/dev/null || fail "no user swiftkv"
[ "$(inside id -u swiftkv)" -ne 0 ] || fail "the user is root"
for file in lib/systemd/system/swiftkv.service lib/sysusers.d/swiftkv.conf share/man/man1/swiftkv.1 \
    share/bash-completion/completions/swiftkv share/zsh/site-functions/_swiftkv \
    share/fish/vendor_completions.d/swiftkv.fish include/skv/skv.h share/doc/swiftkv/copyright; do
    [ -e "$folder/root/usr/$file" ] || [ -e "$folder/root/usr/$file.gz" ] || fail "/usr/$file is missing"
done
unit=$folder/root/usr/lib/systemd/system/swiftkv.service
grep -q '^ExecStart=/usr/bin/swiftkv serve ' "$unit" || fail "the unit starts another program"

# ---- run, as the unit does: its user, its command, its settings ----

# answer PATH: its status
answer() {
    curl --noproxy '*' -s -o "$folder/answer" -w '%{http_code}' "http://127.0.0.1:$port$1" || true
}

run() {
    model=$(sed -n 's/^Environment=SWIFTKV_MODEL=//p' "$unit")
    chroot --userspec=swiftkv:swiftkv "$folder/root" /usr/bin/swiftkv serve "$model" --ctx 256 --port "$port" \
        >"$folder/server.log" 2>&1 </dev/null &
    server=$!
    n=0
    until [ "$(answer /health)" = 200 ]; do
        n=$((n + 1))
        [ $n -lt 300 ] || fail "no answer"
        kill -0 "$server" 2>/dev/null || fail "the server ended"
        sleep 0.2
    done
    [ "$(ps -o uid= -p "$server" | tr -d ' ')" = "$(inside id -u swiftkv)" ] || fail "runs as another user"
    kill -TERM "$server"
    wait "$server" || fail "status $? at SIGTERM"
    server=
}
run
echo "deb: installed, answers as user swiftkv, ends at SIGTERM"

# ---- upgrade, remove, purge ----

echo "SWIFTKV_OPTIONS=--ctx 512" >"$folder/root/etc/swiftkv/serve.conf"
inside dpkg -i /later.deb >"$folder/upgrade.log" 2>&1 || fail "cannot be upgraded"
grep -q 'ctx 512' "$folder/root/etc/swiftkv/serve.conf" || fail "the upgrade lost the settings"
run
inside dpkg -r swiftkv >"$folder/remove.log" 2>&1 || fail "cannot be removed"
[ ! -e "$folder/root/usr/bin/swiftkv" ] || fail "the program stays"
[ -e "$folder/root/etc/swiftkv/serve.conf" ] || fail "removing took the settings"
inside dpkg -P swiftkv >"$folder/purge.log" 2>&1 || fail "cannot be purged"
[ ! -e "$folder/root/etc/swiftkv" ] || fail "purging left the settings"
echo "deb: upgraded, removed and purged"

# ---- the source tarball ----

# Whether all is there that a build needs: not optimised, which takes half the time.
rm -rf "$folder/source"
mkdir "$folder/source"
git -C "$root" archive --prefix=swiftkv/ HEAD | tar -C "$folder/source" -x
mkdir "$folder/source/no-git"
ln -s /bin/false "$folder/source/no-git/git"
PATH=$folder/source/no-git:$PATH "$folder/source/swiftkv/script/build" release swiftkv -DSKV_TESTS=OFF \
    -DCMAKE_BUILD_TYPE=Debug ||
    fail "the source tarball does not build"
"$folder/source/swiftkv/build/swiftkv" --version
rm -rf "$folder/source"
echo "deb: the source tarball builds without git"
