"""Schedulers of clusters are forked from a process that has imported what they import: nine tenths of the work of a
start, of which a run of the tests makes hundreds. `mesos-gpu up`, services, and whoever starts a cluster in a process
of its own start them as ever.

A scheduler that was forked is none of the test's own children: the parent tells of its end. Otherwise it is as one
that was started by its command line: a session, environment and arguments of its own, which /proc shows.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mesos_gpu.local import stack

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = "mesos_gpu.scheduler"
#: Bytes for the arguments and the environment of each: there /proc/PID/cmdline and environ are read from.
ROOM: Final = {"cmdline": 1 << 14, "environ": 1 << 16}
_PAD: Final = "MESOS_GPU_TESTS_ROOM"
#: What only counts when a program begins.
_AT_START: Final = ("LD_", "PYTHON", "MALLOC_", "GLIBC_", "OPENBLAS_")
_MAX: Final = 1 << 17  # bytes of a message


class Forked(subprocess.Popen[bytes]):
    """A scheduler that was forked, as its starter sees it."""

    def __init__(self, pid: int, words: Sequence[str], end: int) -> None:
        """`end`: a pipe from which its exit code is read, once it has ended."""
        self.pid, self.args, self.returncode = pid, [*words], None
        self.stdin = self.stdout = self.stderr = None
        self._end = end
        self._child_created = False  # of subprocess: nothing is to be collected here

    def poll(self) -> int | None:
        """Look once: the exit code as `subprocess` has it, or None while the scheduler runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the scheduler, which its parent tells. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(os.read(self._end, 32))
            os.close(self._end)
        code: int = self.returncode
        return code

    def send_signal(self, sig: int) -> None:
        """Signal it, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, sig)


class Parent:
    """The process that schedulers are forked from; it begins with the first, and ends with `close`."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._exec = stack.spawn
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._pid, self._env = threading.Lock(), os.getpid(), dict(os.environ)

    def __call__(self, words: Sequence[str], env: Mapping[str, str], log: int) -> subprocess.Popen[bytes]:
        """Start a scheduler; `words`: its whole command line, of which `PROGRAM`'s arguments are the end."""
        request = json.dumps({"words": [*words], "env": dict(env)}).encode()
        with self._lock:
            if os.getpid() != self._pid or len(request) > _MAX or not self._alike(words, env):
                return self._exec(words, env, log)
            channel = self._channel or self._begin()
            end, theirs = os.pipe()
            try:
                socket.send_fds(channel, [request], [log, theirs])
            finally:
                os.close(theirs)
            return Forked(int(channel.recv(32)), words, end)

    def _alike(self, words: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether it is to be where the parent is, and not in a namespace of a host, say; whether it is of this
        checkout, for Python looks into its directory first; and whether its environment is like the parent's in what
        counts at a start."""
        if tuple(words[: len(stack.SCHEDULER)]) != stack.SCHEDULER or Path.cwd() != ROOT:
            return False
        names = (name for name in {*env, *self._env} if name.startswith(_AT_START))
        return all(env.get(name) == self._env.get(name) for name in names)

    def _begin(self) -> socket.socket:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [
                sys.executable,
                "-m",
                __name__,
                str(theirs.fileno()),
                "-" * ROOM["cmdline"],
            ]
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**self._env, _PAD: "-" * ROOM["environ"]},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return self._channel

    def close(self) -> None:
        """End it; schedulers that run are left to whom orphans are left to."""
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait(60)


def fork_them(channel: socket.socket) -> dict[str, Any] | None:
    """Fork whatever is asked for, and tell of each end. Returns in each child what it is to be; None: nobody will ask
    any more."""
    ended, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}  # pids, and where each end is told
    while True:
        ready, _, _ = select.select([channel.fileno(), ended], [], [])
        if ended in ready:
            os.read(ended, 4096)
            _tell(children)
        if channel.fileno() not in ready:
            continue
        text, given, _, _ = socket.recv_fds(channel, _MAX, 2)
        if not text:
            return None
        log, end = given
        if pid := os.fork():
            children[pid] = end
            os.close(log)
            channel.send(str(pid).encode())
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (channel.detach(), ended, wakes, end, *children.values()):
            os.close(number)
        return {"log": log, **json.loads(text)}


def _tell(children: dict[int, int]) -> None:
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = children.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody wants to know
            os.write(end, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(end)


def become(words: Sequence[str], env: Mapping[str, str], log: int) -> None:
    """Be as a process that was started so."""
    os.setsid()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for number in 1, 2:
        os.dup2(log, number)
    os.close(log)
    os.environ.clear()
    os.environ.update(env)
    _show(
        [os.fsencode(each) for each in words], [os.fsencode(f"{name}={value}") for name, value in env.items()]
    )
    sys.argv[:] = words[words.index(PROGRAM) :]


def _show(words: Sequence[bytes], pairs: Sequence[bytes]) -> None:
    """Let /proc have these as arguments and environment: they are read from where the kernel put the first ones, whose
    places are in /proc/PID/stat (proc(5)). Nothing of the C library points there any more: the environment was set
    anew."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    arguments, arguments_end, environment, environment_end = map(int, fields[45:49])
    for at, room, texts in (
        (arguments, arguments_end - arguments, words),
        (environment, environment_end - environment, pairs),
    ):
        block = b"".join(each + b"\0" for each in texts)
        assert len(block) < room, f"{len(block)} bytes, and room for {room}"
        ctypes.memmove(at, block.ljust(room, b"\0"), room)


def main(end: int) -> None:
    """Be the parent, and in each child the scheduler."""
    gc.disable()
    importlib.import_module(f"{PROGRAM}.__main__")
    del sys.modules[f"{PROGRAM}.__main__"]  # it is run in each
    gc.collect()
    gc.freeze()
    gc.enable()
    request = fork_them(socket.socket(fileno=end))
    if request is not None:
        become(**request)
        runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
