"""Run as tasks: one passes a directory on, in which the other keeps many directories ahead of the seal, and exchanges
names in a directory that is not sealed yet.

Arguments: `give`, a socket, a directory of root, and a file whose existence ends it; or `hold`, a socket and a file
that gets a line for each directory that is full. The first lines are there before the other task can end.
"""

import ctypes
import os
import socket
import sys
import time
from collections.abc import Callable

EXCHANGE = 2  # RENAME_EXCHANGE, linux/fs.h
NAMES = 20
FILES = 50  # in each directory, by the names that root's have
MANY = 1000
AHEAD = 8  # directories of so many each that are full and not sealed
libc = ctypes.CDLL(None, use_errno=True)


def give(path: str, target: str, end: str) -> None:
    os.umask(0)
    for number in range(40):
        os.makedirs(f"d/{number}")
    left = os.listdir("d")  # a walk enters the last first
    for number in range(NAMES):
        own = f"d/{left[0]}/own{number}"
        os.mkdir(own)
        for each in range(FILES):
            os.close(os.open(f"{own}/file{each}", os.O_CREAT | os.O_WRONLY))
        os.symlink(target, f"d/{left[0]}/directory{number}")
    fill(os.open(f"d/{left[-1]}", os.O_RDONLY))
    with socket.socket(socket.AF_UNIX) as line:
        while line.connect_ex(path):
            time.sleep(0.05)
        names = f"{left[0]} {left[-1]}".encode()
        socket.send_fds(line, [names], [os.open("d", os.O_RDONLY | os.O_DIRECTORY)])
        line.recv(1)
    while not os.path.exists(end):
        time.sleep(0.05)


def fill(fd: int) -> None:
    for number in range(MANY):
        os.mkdir(str(number), dir_fd=fd)


def below(fd: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)


def hold(path: str, says: str) -> None:
    os.umask(0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        line = listener.accept()[0]
    names, (fd,), *_ = socket.recv_fds(line, 100, 1)
    first, last = (below(fd, name) for name in names.decode().split())
    levels = [last]

    def add() -> None:
        levels.append(below(levels[-1], os.listdir(levels[-1])[0]))
        fill(levels[-1])
        with open(says, "a") as file:
            file.write("full\n")

    for _ in range(AHEAD):
        add()
    line.send(b"x")  # the giver may end
    if os.fork() == 0:
        while True:
            for number in range(NAMES):  # of those that root does not remove at this moment
                libc.renameat2(first, b"own%d" % number, first, b"directory%d" % number, EXCHANGE)
            time.sleep(0.01)
    while True:
        while os.fstat(levels[-AHEAD]).st_uid != 0:
            time.sleep(0.01)
        add()


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {"give": give, "hold": hold}
    programs[sys.argv[1]](*sys.argv[2:])
