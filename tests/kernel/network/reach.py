"""Runs as a task: try to reach each ADDRESS@PORT, and to listen there, by every way that a program has, or by the one
that is named first as way=NAME; the errors' numbers as JSON, 0: none."""

import ctypes
import errno
import json
import os
import socket
import struct
import sys
from collections.abc import Callable

Target = tuple[str, int]

MSG_FASTOPEN = 0x20000000
IPPROTO_MPTCP = 262


def tcp(family: int, target: Target, protocol: int = 0) -> None:
    with socket.socket(family, socket.SOCK_STREAM, protocol) as made:
        made.settimeout(2)
        made.connect(target)


def fast_open(family: int, target: Target) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.settimeout(2)
        made.sendto(b"GET / HTTP/1.0\r\n\r\n", MSG_FASTOPEN, target)


def udp(family: int, target: Target) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as made:
        made.sendto(b"x", target)


def udp_connected(family: int, target: Target) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as made:
        made.connect(target)


def udp_message(family: int, target: Target) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as made:
        made.sendmsg([b"x"], [], 0, target)


def bound_first(family: int, target: Target) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as made:
        made.bind(("", 0))
        made.settimeout(2)
        made.connect(target)


def bound(family: int, target: Target, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
    """Be taken for what listens there when it is not there."""
    with socket.socket(family, kind) as made:
        made.bind(target)


def in_user_namespace(family: int, target: Target) -> None:
    """Try as root of a user namespace of its own, which the kernel may refuse."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        number = 0
        if ctypes.CDLL(None).unshare(0x10000000):
            number = errno.EPERM
        else:
            number = tried(tcp, family, target)
        os.write(writer, struct.pack("i", number))
        os._exit(0)
    os.waitpid(pid, 0)
    number = struct.unpack("i", os.read(reader, 4))[0]
    os.close(reader)
    os.close(writer)
    if number:
        raise OSError(number, "")


def by_io_uring(family: int, target: Target) -> None:
    """IORING_OP_CONNECT, by the bare system calls; a kernel or a policy may refuse the ring."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    params = ctypes.create_string_buffer(120)
    ring = libc.syscall(425, 4, params)
    if ring < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup")
    entries, cq_entries = struct.unpack_from("II", params.raw, 0)
    sq = struct.unpack_from("10I", params.raw, 40)  # head tail mask entries flags dropped array …
    cq = struct.unpack_from("10I", params.raw, 80)  # head tail mask entries overflow cqes …
    shared, populate = 1, 0x8000
    sq_ring = libc.mmap(None, sq[6] + entries * 4, 3, shared | populate, ring, 0)
    cq_ring = libc.mmap(None, cq[5] + cq_entries * 16, 3, shared | populate, ring, 0x8000000)
    sqes = libc.mmap(None, entries * 64, 3, shared | populate, ring, 0x10000000)
    made = socket.socket(family, socket.SOCK_STREAM)
    if family == socket.AF_INET:
        where = (
            struct.pack("=H", family) + struct.pack("!H", target[1]) + socket.inet_aton(target[0]) + bytes(8)
        )
    else:
        where = (
            struct.pack("=H", family)
            + struct.pack("!HI", target[1], 0)
            + socket.inet_pton(family, target[0])
            + bytes(4)
        )
    address = ctypes.create_string_buffer(where, len(where))
    entry = struct.pack("=BBHiQQ", 16, 0, 0, made.fileno(), len(where), ctypes.addressof(address)).ljust(
        64, b"\0"
    )
    ctypes.memmove(sqes, entry, 64)
    ctypes.c_uint32.from_address(sq_ring + sq[6]).value = 0
    ctypes.c_uint32.from_address(sq_ring + sq[1]).value = 1
    done = libc.syscall(426, ring, 1, 1, 1, None, 0)
    if done < 0:
        raise OSError(ctypes.get_errno(), "io_uring_enter")
    result = ctypes.c_int32.from_address(cq_ring + cq[5] + 8).value
    os.close(ring)
    made.close()
    if result < 0:
        raise OSError(-result, "")


def tried(way: Callable[[int, Target], None], family: int, target: Target) -> int:
    try:
        way(family, target)
    except OSError as error:
        return error.errno or -1
    return 0


WAYS: dict[str, Callable[[int, Target], None]] = {
    "tcp": tcp,
    "tcp, bound first": bound_first,
    "mptcp": lambda family, target: tcp(family, target, IPPROTO_MPTCP),
    "fast open": fast_open,
    "udp": udp,
    "udp connected": udp_connected,
    "udp message": udp_message,
    "listen": bound,
    "listen, udp": lambda family, target: bound(family, target, socket.SOCK_DGRAM),
    "io_uring": by_io_uring,
    "user namespace": in_user_namespace,
}


def main() -> None:
    results, ways = {}, WAYS
    for text in sys.argv[1:]:
        if text.startswith("way="):
            ways = {text[4:]: WAYS[text[4:]]}
            continue
        address, _, port = text.partition("@")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        results[text] = {name: tried(way, family, (address, int(port))) for name, way in ways.items()}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
