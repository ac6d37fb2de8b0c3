"""Run as tasks: one passes a directory of its sandbox on as a descriptor, the other changes names there for ever.

Arguments: `give`, a socket, a directory of root, and where to begin if that is not here; or `hold`, a socket and a file
to write to what was denied. Of a socket at a port: `lend`, a socket and a kind; `keep`, a socket; `serve`.
"""

import ctypes
import os
import socket
import struct
import sys
import time
from collections.abc import Callable

EXCHANGE = 2  # RENAME_EXCHANGE, linux/fs.h
NAMES = 20
FILES = 50  # in each directory, by the names that root's have
#: An access control list that lets everybody write (linux/posix_acl_xattr.h).
LIST = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, 7, 0xFFFFFFFF) for tag in (1, 4, 0x20))
libc = ctypes.CDLL(None, use_errno=True)


def exchange(fd: int, one: str, other: str) -> None:
    if libc.renameat2(fd, one.encode(), fd, other.encode(), EXCHANGE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def give(path: str, target: str, directory: str = ".") -> None:
    """Pass on a directory in which are files, and links that lead to files of `target`."""
    if directory != ".":
        path = os.path.abspath(path)  # of a sandbox on the host it would be too long for a socket
        os.chdir(directory)
    os.makedirs("d/below")
    os.chmod("d", 0o777)
    for number in range(NAMES):
        with open(f"d/mine{number}", "w") as file:
            file.write("the tenant's")
        os.symlink(f"{target}/canary", f"d/file{number}")
        os.mkdir(f"d/own{number}")
        with open(f"d/own{number}/canary", "w") as file:
            file.write("the tenant's")
        for each in range(FILES):
            os.close(os.open(f"d/own{number}/file{each}", os.O_CREAT | os.O_WRONLY))
        os.symlink(target, f"d/directory{number}")
    with socket.socket(socket.AF_UNIX) as line:
        while line.connect_ex(path):
            time.sleep(0.05)
        socket.send_fds(line, [b"x"], [os.open("d", os.O_RDONLY | os.O_DIRECTORY)])
        line.recv(1)
    print("gave", flush=True)


def hold(path: str, says: str) -> None:
    """Exchange names there; when the kernel refuses, try every other way to change something, until all are refused."""
    os.umask(0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        line = listener.accept()[0]
    fd = socket.recv_fds(line, 1, 1)[1][0]
    line.send(b"x")
    line.close()
    refused = ""
    while not refused:
        try:
            for number in range(NAMES):
                exchange(fd, f"mine{number}", f"file{number}")
                exchange(fd, f"own{number}", f"directory{number}")
        except FileNotFoundError:  # root removes them at this moment
            continue
        except OSError as error:
            refused = error.strerror or str(error)
    while any(succeeds(attempt) for attempt in attempts(fd)):
        pass
    with open(says + ".new", "w") as file:
        file.write(refused)
    os.rename(says + ".new", says)
    time.sleep(600)


def attempts(fd: int) -> list[Callable[[], object]]:
    at = f"/proc/self/fd/{fd}"
    return [
        lambda: exchange(fd, "own0", "directory0"),
        lambda: os.close(os.open("new", os.O_CREAT | os.O_WRONLY, 0o666, dir_fd=fd)),
        lambda: os.unlink("mine1", dir_fd=fd),
        lambda: os.mkdir("new-directory", dir_fd=fd),
        lambda: os.symlink("/etc/passwd", "new-link", dir_fd=fd),
        lambda: os.link("mine2", "new-name", src_dir_fd=fd, dst_dir_fd=fd),
        lambda: os.rename("mine3", "below/mine", src_dir_fd=fd, dst_dir_fd=fd),
        lambda: os.close(os.open("mine4", os.O_WRONLY, dir_fd=fd)),
        lambda: os.fchmod(fd, 0o777),
        lambda: os.chmod("below", 0o777, dir_fd=fd),
        lambda: os.fchown(fd, os.getuid(), -1),
        lambda: os.setxattr(at, "system.posix_acl_access", LIST),
        lambda: os.unlink("../stdout", dir_fd=fd),
    ]


def succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def lend(path: str, kind: str) -> None:
    """Pass on a socket that is bound to this task's port, and end."""
    lent = socket.socket(type=socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    lent.bind(("", int(os.environ["PORT0"])))
    if kind == "listening":
        lent.listen()
    with socket.socket(socket.AF_UNIX) as line:
        while line.connect_ex(path):
            time.sleep(0.05)
        socket.send_fds(line, [b"x"], [lent.fileno()])
        line.recv(1)


def keep(path: str) -> None:
    """Keep a socket that another task passes on, for ever."""
    os.umask(0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        line = listener.accept()[0]
    kept = socket.recv_fds(line, 1, 1)[1]
    line.send(b"x")
    print("keeps", len(kept), flush=True)
    time.sleep(600)


def serve() -> None:
    """Listen at this task's port, by TCP and UDP, without an option that would share it."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        socket.socket(type=kind).bind(("", int(os.environ["PORT0"])))
    print("serves", flush=True)


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "give": give, "hold": hold, "lend": lend, "keep": keep, "serve": serve,
    }  # fmt: skip
    programs[sys.argv[1]](*sys.argv[2:])
