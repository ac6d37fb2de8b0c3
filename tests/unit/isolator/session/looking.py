"""Program for `isolator.runs.joined` that prints the rights and the view of a process in a task's place, as JSON."""

import ctypes
import json
import os

WAYS = ("/etc/passwd", "../../etc/passwd", "link", "/proc/1/environ")


def main(words: tuple[str, ...]) -> int:
    libc = ctypes.CDLL(None)
    sets = (ctypes.c_uint32 * 6)()
    libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), sets)
    reached = [way for way in WAYS if os.path.exists(way)]
    said = {
        "uid": os.geteuid(),
        "groups": os.getgroups(),
        "capabilities": list(sets),
        "may have more": libc.prctl(39, 0, 0, 0, 0) != 1,  # PR_GET_NO_NEW_PRIVS
        "root": sorted(os.listdir("/")),
        "reached": reached,
    }
    os.write(1, json.dumps(said).encode())
    return 0
