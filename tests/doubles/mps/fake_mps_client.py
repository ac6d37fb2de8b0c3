"""The control client of fake_mps.py, which is run as a file; few imports, as tests start it hundreds of times."""

import os
import sys
from _socket import (
    AF_UNIX,
    SOCK_STREAM,
    socket,
)  # the module `socket` takes as long as the interpreter's start
from collections.abc import Iterable, Iterator

REFUSED = "\1"  # first character of a refusal; fake_mps.py has a copy
_DAEMON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fake_mps.py")
_MULTIUSER = {"-m", "-multiuser-server"}


def _lines(daemon: socket) -> Iterator[str]:
    """Yield the lines that the daemon writes until it hangs up."""
    left = b""
    while part := daemon.recv(1 << 16):
        *whole, left = (left + part).split(b"\n")
        yield from (line.decode() for line in whole)


def ask(pipes: str, commands: Iterable[str]) -> int:
    """Send commands to the daemon and print its answers; return 1 if there is no daemon or it refuses a command."""
    daemon = socket(AF_UNIX, SOCK_STREAM)
    try:
        daemon.connect(os.path.join(pipes, "control"))
    except OSError:
        print("Cannot find MPS control daemon process", file=sys.stderr)
        return 1
    answers = _lines(daemon)
    for command in commands:
        daemon.sendall(f"{command.strip()}\n".encode())
        for line in answers:
            if line == "\0":
                break
            if line.startswith(REFUSED):
                print(line.removeprefix(REFUSED), file=sys.stderr)
                return 1
            print(line)
    return 0


def main() -> int:
    """Send commands to the daemon, or become the daemon (`-f`); return the exit status."""
    protocol, kind, *arguments = sys.argv[1:]
    if kind != "multiuser" and _MULTIUSER & set(arguments):  # as 535 does with unknown options
        print("Cannot find MPS control daemon process", file=sys.stderr)
        return 1
    if "-f" in arguments:
        os.execv(sys.executable, [sys.executable, "-I", "-S", _DAEMON, *sys.argv[1:]])  # nosec B606 # no shell
    # [doc] protocol 2 has a shell; protocol 3 takes one command, as arguments.
    return ask(os.environ["CUDA_MPS_PIPE_DIRECTORY"], [" ".join(arguments)] if protocol == "3" else sys.stdin)


if __name__ == "__main__":
    sys.exit(main())
