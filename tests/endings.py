"""Commands of tasks, with the output and the exit code of each after SIGTERM."""

from dataclasses import dataclass

#: Says `ready`, and saves its work at SIGTERM for a while.
_SAVES = 'trap "sleep 0.3; echo saved; exit 0" TERM; echo ready; while :; do sleep 0.05; done'
#: As PyTorch's main process: at SIGTERM it needs its worker, which SIGTERM would end.
_WITH_WORKER = """
mkfifo {0}/asked {0}/answer
while read word < {0}/asked; do echo "done $word" > {0}/answer; done &
trap 'sleep 0.3; echo state > {0}/asked; read word < {0}/answer; echo "saved $word"; exit 0' TERM
echo ready
while :; do sleep 0.05; done
"""
#: Starts a program at SIGTERM, which must not get the signal of that time.
_FORKS = (
    'trap \'sh -c "trap \\"echo signalled\\" TERM; sleep 0.4; echo saved"; exit 0\' TERM; echo ready;'
    " while :; do sleep 0.05; done"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A command of /bin/sh; every word but `sh` and `setsid` is of it or of any busybox.

    Attributes:
        command: The command; "{0}" is a directory in which it may write. Prints `ready`.
        says: Whole output of the command after SIGTERM.
        code: Exit code of the first process; None if SIGTERM ends the first process.
        ignores: Whether the command lives until SIGKILL.
    """

    command: str
    says: str = "saved\n"
    code: int | None = None
    ignores: bool = False


CASES = {
    "a shell whose program saves": Case(f"sh -c '{_SAVES}'; echo next"),
    "a shell in a shell": Case(
        f"sh -c \"sh -c '{_SAVES.replace(chr(34), chr(92) + chr(34))}'; echo next\"; echo next"
    ),
    "a pipe that is read": Case(f"sh -c '{_SAVES}' | cat; echo next"),
    "no handler": Case("echo ready; sleep 600 | cat; echo next", says=""),
    "setsid": Case(f"setsid sh -c '{_SAVES}' & wait; echo next"),
    "double fork": Case(f"(sh -c '{_SAVES}' &); sleep 600; echo next"),
    "a worker that serves": Case(_WITH_WORKER, says="saved done state\n", code=0),
    "a program that is started meanwhile": Case(f"{_FORKS}", code=0),
    "ignored": Case("trap '' TERM; echo ready; while :; do sleep 0.05; done", says="", ignores=True),
}

#: Python's multiprocessing: METHOD of start, and what the worker does with SIGTERM. Its program saves by its worker.
WORKERS = """
import multiprocessing, os, signal, sys, time

def serve(line, what):
    if what == "default":
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if what == "ends":  # as PyTorch's workers do
        signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
    while True:
        line.send(line.recv() * 2)

def save(*_):
    time.sleep(0.3)
    line.send(21)
    print("saved", line.recv(), flush=True)
    worker.kill()
    os._exit(0)

if __name__ == "__main__":
    method, what = sys.argv[1:]
    context = multiprocessing.get_context(method)
    line, theirs = context.Pipe()
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, save)
    worker = context.Process(target=serve, args=(theirs, what), daemon=True)
    worker.start()
    theirs.close()
    line.send(1)
    line.recv()
    print("ready", flush=True)
    while True:
        time.sleep(0.05)
"""
