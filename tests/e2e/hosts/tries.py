"""Runs as a task: try to get at what commands the cluster, and at other tasks. The standard library alone.

Its argument, JSON: `ports` of agents, master and scheduler; `sockets` and `files` of the host, by path; `pids` of
others' processes; `mark`: a word in the environments of other tasks; `abstract`: a Unix socket without a file, of
others, and of others is all shared memory of System V that there is. Prints a JSON list of two for each try: its name,
and the name of the error that refused it, or what it got.
"""

import ctypes
import errno
import json
import os
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial

libc = ctypes.CDLL(None, use_errno=True)
ADDRESSES = ("127.0.0.1", "127.0.0.11", "0.0.0.0", "::1", "::ffff:127.0.0.1")
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
PTRACE_SEIZE = 0x4206
SHM_RDONLY = 0o10000
PIDFD_OPEN, PIDFD_GETFD, PROCESS_VM_READV = 434, 438, 310
OWN = os.environ["MESOS_TASK_ID"].encode()
Try = tuple[str, Callable[[], str]]
#: Method, path and body of what each of them is asked.
REQUESTS = {
    "master": [
        ("GET", "/state", ""), ("GET", "/flags", ""), ("POST", "/teardown", "frameworkId=x"),
        *(("POST", "/api/v1", json.dumps({"type": name})) for name in ("GET_STATE", "TEARDOWN", "RESERVE_RESOURCES")),
        ("POST", "/api/v1/scheduler", '{"type": "SUBSCRIBE"}'),
        ("POST", "/master/mesos.internal.UnregisterSlaveMessage", ""),
    ],
    "agent": [
        ("GET", "/state", ""), ("GET", "/files/read?path=/&offset=0", ""), ("GET", "/containers", ""),
        *(("POST", "/api/v1", json.dumps({"type": name})) for name in ("LAUNCH_NESTED_CONTAINER", "LAUNCH_CONTAINER")),
        ("POST", "/api/v1/executor", '{"type": "SUBSCRIBE"}'), ("POST", "/api/v1/executor", '{"type": "UPDATE"}'),
    ],
    "scheduler": [
        ("GET", "/v1/jobs", ""), ("POST", "/v1/jobs", "{}"), ("GET", "/v2/apps", ""), ("GET", "/", ""),
        ("GET", "/v1/access", ""), ("DELETE", "/v2/apps/x", ""),
    ],
}  # fmt: skip


def answered(address: str, port: int, method: str, path: str, body: str) -> str:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as made:
        made.settimeout(10)
        made.connect((address, port))
        head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
        made.sendall("\r\n".join([*head, f"Content-Length: {len(body)}", "", body]).encode())
        return made.recv(200).decode(errors="replace")


def listening(port: int) -> str:
    with socket.socket() as made:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", port))
    return "listens"


def datagram(port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.sendto(b"x", ("127.0.0.1", port))
    return "sent"


def of_another_network(port: int, enter: Callable[[], None]) -> str:
    """By a child, whose network is another from then on."""
    out, inside = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            enter()
            said = answered("127.0.0.1", port, "GET", "/", "")
        except OSError as error:
            said = f"!{error.errno}"
        os.write(inside, said.encode())
        os._exit(0)
    os.close(inside)
    with os.fdopen(out, "rb") as file:
        got = file.read().decode()
    os.waitpid(pid, 0)
    if got.startswith("!"):
        raise OSError(int(got[1:]), "in the child")
    return got


def checked(done: int) -> str:
    if done < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return f"went: {done}"


def own_network() -> None:
    checked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNET))


def network_of(pid: int) -> None:
    with open(f"/proc/{pid}/ns/net") as file:
        checked(libc.setns(file.fileno(), 0))


def raw() -> str:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP).close()
    return "made"


def packets() -> str:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    return "made"


def tunnel() -> str:
    os.close(os.open("/dev/net/tun", os.O_RDWR))
    return "opened"


def by_network(ports: dict[str, list[int]]) -> Iterator[Try]:
    for name, numbers in ports.items():
        for port in numbers:
            for address in ADDRESSES:
                for request in REQUESTS[name]:
                    what = f"{name} {address}:{port} {' '.join(request)}"
                    yield what, partial(answered, address, port, *request)
            yield f"listen as {name} {port}", partial(listening, port)
            yield f"datagram to {name} {port}", partial(datagram, port)
            yield (
                f"{name} {port} from a network of its own",
                partial(of_another_network, port, own_network),
            )
            yield (
                f"{name} {port} from init's network",
                partial(of_another_network, port, partial(network_of, 1)),
            )
    yield from (("raw socket", raw), ("packet socket", packets), ("tunnel", tunnel))


def connected(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.settimeout(10)
        made.connect(path)
        made.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return made.recv(200).decode(errors="replace")


def talked(name: str) -> str:
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(f"\0{name}")
    return "connected"


def shared_memory() -> str:
    libc.shmat.restype = ctypes.c_void_p
    with open("/proc/sysvipc/shm") as file:
        listed = [line.split()[1] for line in file.readlines()[1:]]
    for ident in listed:
        if (at := libc.shmat(int(ident), None, SHM_RDONLY)) not in (None, ctypes.c_void_p(-1).value):
            return f"reads {ctypes.string_at(at, 20)!r}"
    raise OSError(errno.ENODATA, "there is none to be read")


def content(path: str) -> str:
    if os.path.isdir(path):
        if names := os.listdir(path):
            return f"lists {names}"
        raise OSError(errno.ENODATA, "nothing is in it")
    with open(path, "rb") as file:
        return f"reads {file.read(200)!r}"


def by_files(paths: list[str], sockets: list[str]) -> Iterator[Try]:
    yield from ((f"socket {path}", partial(connected, path)) for path in sockets)
    yield from ((f"file {path}", partial(content, path)) for path in paths)


def marked(mark: str) -> list[int]:
    """Processes of other tasks that say so."""
    listed = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and secret_of(int(name), mark, "environ") and not is_own(int(name)):
                listed.append(int(name))
        except OSError:
            continue
    return listed


def is_own(pid: int) -> bool:
    """Whether it is a process of this task, or none any more."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"MESOS_TASK_ID=" + OWN in file.read().split(b"\0")
    except FileNotFoundError:
        return True
    except OSError:
        return False


def secret_of(pid: int, mark: str, name: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        text = file.read() if name != "mem" else b"opened"
    if mark.encode() in text or (text and name != "environ"):
        return f"reads {name}"
    raise OSError(errno.ENODATA, "nothing of another task")


def linked(pid: int, name: str) -> str:
    return os.readlink(f"/proc/{pid}/{name}")


def below(pid: int, name: str) -> str:
    return f"lists {os.listdir(f'/proc/{pid}/{name}/')}"


def read_memory(pid: int) -> str:
    buffer = ctypes.create_string_buffer(8)
    local, remote = (struct.pack("PN", at, 8) for at in (ctypes.addressof(buffer), 4096))
    none = ctypes.c_ulong(0)
    return checked(
        libc.syscall(PROCESS_VM_READV, pid, local, ctypes.c_ulong(1), remote, ctypes.c_ulong(1), none)
    )


def taken_descriptor(pid: int) -> str:
    pidfd = libc.syscall(PIDFD_OPEN, pid, 0)
    checked(pidfd)
    try:
        return checked(libc.syscall(PIDFD_GETFD, pidfd, 0, 0))
    finally:
        os.close(pidfd)


def traced(request: int, pid: int) -> str:
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    return checked(libc.ptrace(request, pid, None, None))


def by_processes(pids: list[int], mark: str) -> Iterator[Try]:
    for pid in sorted({*(pid for pid in pids if not is_own(pid)), *marked(mark)}):
        for name in ("environ", "mem"):
            yield f"{name} of {pid}", partial(secret_of, pid, mark, name)
        for name in ("root", "cwd", "exe", "fd/0", "ns/net", "ns/mnt"):
            yield f"{name} of {pid}", partial(linked, pid, name)
        for name in ("root", "cwd"):
            yield f"below {name} of {pid}", partial(below, pid, name)
        yield f"memory of {pid}", partial(read_memory, pid)
        yield f"descriptor of {pid}", partial(taken_descriptor, pid)
        yield f"seize {pid}", partial(traced, PTRACE_SEIZE, pid)


def main() -> None:
    given = json.loads(sys.argv[1])
    tries: list[Try] = [
        *by_network(given["ports"]),
        *by_files(given["files"], given["sockets"]),
        *by_processes(given["pids"], given["mark"]),
        ("abstract socket", partial(talked, given["abstract"])),
        ("shared memory", shared_memory),
    ]
    for name, attempt in tries:
        try:
            got = attempt()
        except OSError as error:
            got = errno.errorcode.get(error.errno or 0, repr(error))
        print(json.dumps([name, got]), flush=True)


main()
