"""No network: switches in the environment, a guard on Python's sockets, a network namespace of our own.

1. `switches` tells the libraries that an engine may load not to call anyone. They are set when a command starts, not
   when `runner` is imported: nothing reads them before an engine opens, and an importer's environment is its own.
2. `guard` watches this process's Python code: a call that would leave the machine raises Integrity, and is kept, so
   that a library that swallows the error still ends the run with exit 5. It sees neither native code nor children.
3. `isolate` has the kernel enforce it, for both: the process has loopback and nothing else. What still leads out of
   it is a socket with a path (AF_UNIX), or one that was inherited open.
"""

from runner.offline.hosts import Host, hosts, note, outside
from runner.offline.namespace import again, check_endpoints, interfaces, isolate, isolated, made_here, unreachable
from runner.offline.sockets import Attempt, allow, attempts, guard, probe
from runner.offline.switches import SWITCHES, switches, wrong

__all__ = [
    "SWITCHES", "Attempt", "Host", "again", "allow", "attempts", "check_endpoints", "guard", "hosts", "interfaces",
    "isolate", "isolated", "made_here", "note", "outside", "probe", "switches", "unreachable", "wrong",
]  # fmt: skip
