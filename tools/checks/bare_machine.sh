#!/bin/sh
# Shows that a bare Debian machine needs nothing but this repository: makes a minimal root with
# debootstrap, puts a fresh clone into it, and runs script/test and script/run there.
#     tools/checks/bare_machine.sh FOLDER [script/test option ...]
# Needs root and debootstrap. FOLDER must not exist; it is left there for a look, and holds
# nothing that is mounted. SUITE and MIRROR are taken from this machine unless they are set.
set -eu

if [ $# -lt 1 ] || [ -e "$1" ] || [ "$(id -u)" -ne 0 ]; then
    sed -n '2,6s/^# //p' "$0" >&2
    exit 2
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
folder=$1
shift

# shellcheck source=/dev/null
SUITE=${SUITE:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
# shellcheck disable=SC2016 # apt's own $(...)
MIRROR=${MIRROR:-$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
    awk -v suite="$SUITE" '$2 == suite { print $1; exit }')}
echo "bare machine: $SUITE from $MIRROR in $folder"
debootstrap --variant=minbase "$SUITE" "$folder" "$MIRROR" >"$folder.log" 2>&1 || {
    tail -n 20 "$folder.log" >&2
    exit 1
}
rm -f "$folder.log"

# The way to the packages is this machine's: name service, proxy, the same mirror.
cp -L /etc/resolv.conf /etc/hosts "$folder/etc/"
apt-config dump | grep -i '^Acquire::\(http\|https\|ftp\|Check\)' >"$folder/etc/apt/apt.conf.d/90host" || true

git clone -q --no-hardlinks "$root" "$folder/swiftkv"
# shellcheck disable=SC2016 # expanded by the inner shell
commands='
    set -eu
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev"
    mount --rbind /sys "$0/sys"
    chroot "$0" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"
'
inside() {
    # Mounted in a name space of its own, so that nothing stays mounted.
    unshare --mount --propagation private sh -c "$commands" "$folder" "$@" </dev/null
}

status=0
for command in "script/test $*" script/run; do
    echo "bare machine: $command"
    start=$(date +%s)
    # shellcheck disable=SC2086 # a command and its options
    inside ${SKV_FUZZ_SECONDS:+SKV_FUZZ_SECONDS=$SKV_FUZZ_SECONDS} swiftkv/$command || status=1
    echo "bare machine: $command took $(($(date +%s) - start)) s"
done
exit $status
