"""Machines for tests: network namespaces of this one, joined by a bridge, each with an address of its own.

`enter` runs the test once more in namespaces of its own, so that all of it goes with the test, whatever ends that. Needs
root, iproute2 and util-linux."""

import os
import shutil
import subprocess
import sys

INSIDE = "SKV_TEST_HOSTS"
NET = "10.78.0"
MAKES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
TRIES = "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip link add br0 type bridge && ip netns add h && " \
        "ip link add p type veth peer name eth0 netns h"


def why_not():
    """What is missing, or None."""
    for tool in ("ip", "unshare"):
        if not shutil.which(tool):
            return f"no {tool} here"
    tried = subprocess.run([*MAKES, "sh", "-c", TRIES], capture_output=True, check=False)
    return None if tried.returncode == 0 else "network namespaces cannot be made here (they need root)"


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def enter():
    """Returns in the namespaces, the first time never; 77 and a line where there can be none."""
    if INSIDE in os.environ:
        subprocess.run(["sh", "-c", "mount -t tmpfs tmpfs /run && mkdir /run/netns"], check=True)
        for words in ("link set lo up", "link add br0 type bridge", f"address add {NET}.254/24 dev br0", "link set br0 up"):
            ip(*words.split())
        return
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    sys.stdout.flush()
    os.execvpe(MAKES[0], [*MAKES, sys.executable, "-B", *sys.argv], {**os.environ, INSIDE: "yes"})


class Host:
    """One machine; its processes begin with the words of `launch`."""

    def __init__(self, name, number):
        self.name, self.address, self.launch = name, f"{NET}.{number}", ("ip", "netns", "exec", name)
        ip("netns", "add", name)
        ip("link", "add", f"port-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", f"port-{name}", "master", "br0", "up")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "address", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")

    def plug(self, is_in):
        """Its cable, in or out: what it sends or is sent is lost."""
        ip("link", "set", f"port-{self.name}", "up" if is_in else "down")
