#!/bin/sh
# Runs a command under mpirun on hosts that are network namespaces of this machine, each with an
# address, a name and processes of its own, joined by a bridge:
#     tools/mpi_hosts.sh HOSTS SLOTS COMMAND [ARGUMENT ...]
# SLOTS processes run on each. What COMMAND writes to SKV_HOST_FOLDER (a folder, if it is set) host 1
# sees as it is, and every other host has an empty folder of its own there.
# SKV_HOST_RATE, if it is set ("1gbit"), is what each host sends at most. SKV_HOST_BYTES, if it is set, is a file that gets
# the bytes that each has sent.
# Nothing is left behind, since all of it lives in namespaces of this script. Needs root and
# iproute2; exits with 77 where namespaces cannot be made.
set -eu

if [ $# -lt 3 ]; then
    sed -n '2,11s/^# //p' "$0" >&2
    exit 2
fi
if [ "${SKV_HOSTS_INSIDE:-}" != yes ]; then
    if ! command -v ip >/dev/null || ! command -v mpirun >/dev/null; then
        echo 'mpi_hosts: no ip or no mpirun here' >&2
        exit 77
    fi
    if ! unshare --net --mount --uts --propagation private sh -c '
        mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && ip link add br0 type bridge &&
            ip netns add host1 && ip link add port1 type veth peer name eth0 netns host1' \
        >/dev/null 2>&1; then
        echo 'mpi_hosts: network namespaces cannot be made here' >&2
        exit 77
    fi
    SKV_HOSTS_INSIDE=yes exec unshare --net --mount --propagation private "$0" "$@"
fi

hosts=$1
slots=$2
shift 2
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
ip link set lo up
ip link add br0 type bridge
ip address add 10.77.0.254/24 dev br0
ip link set br0 up

list=
i=1
while [ "$i" -le "$hosts" ]; do
    ip netns add "host$i"
    ip link add "port$i" type veth peer name eth0 netns "host$i"
    ip link set "port$i" master br0 up
    ip -n "host$i" link set lo up
    ip -n "host$i" address add "10.77.0.$i/24" dev eth0
    ip -n "host$i" link set eth0 up
    if [ -n "${SKV_HOST_RATE:-}" ]; then
        tc -n "host$i" qdisc add dev eth0 root tbf rate "$SKV_HOST_RATE" burst 1mb latency 50ms
    fi
    list=$list${list:+,}10.77.0.$i:$slots
    i=$((i + 1))
done

# What mpirun takes for ssh: AGENT ADDRESS COMMAND...
agent=/run/netns/agent
cat >"$agent" <<'AGENT'
#!/bin/sh
set -eu
n=${1##*.}
shift
export HOST_COMMAND="$*"
# shellcheck disable=SC2016 # expanded by the inner shell
exec ip netns exec "host$n" unshare --uts --mount --propagation private sh -c '
    hostname "host$0"
    if [ -n "${SKV_HOST_FOLDER:-}" ] && [ "$0" -gt 1 ]; then
        mount -t tmpfs tmpfs "$SKV_HOST_FOLDER"
    fi
    eval "exec $HOST_COMMAND"' "$n"
AGENT
chmod +x "$agent"

root=
[ "$(id -u)" -ne 0 ] || root=--allow-run-as-root
# shellcheck disable=SC2086 # an option or nothing
mpirun $root --oversubscribe --bind-to none -np $((hosts * slots)) --host "$list" \
    --mca plm_rsh_agent "$agent" --mca mpi_yield_when_idle 1 --mca btl self,tcp \
    --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "$@" &
job=$!
trap 'kill "$job" 2>/dev/null || true' TERM INT
status=0
wait "$job" || status=$?
if [ -n "${SKV_HOST_BYTES:-}" ]; then
    i=1
    while [ "$i" -le "$hosts" ]; do
        ip netns exec "host$i" cat /sys/class/net/eth0/statistics/tx_bytes
        i=$((i + 1))
    done >"$SKV_HOST_BYTES"
fi
exit "$status"
