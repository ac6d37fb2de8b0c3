"""Run of pytest that always ends: `python -m tests.runner.run [arguments of pytest]`.

pytest runs as a child. Each process that runs tests names its present test in a file (tests/runner/progress.py). The
runner reads these files: a process that died or is stuck is named by its test and ends the run, even if xdist waits.
No process that the run started is alive at its end: what a test left is named and killed, and makes the run red.
With --again the few tests that failed are run once more (tests/runner/again.py).
"""

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest

from isolator.host import processes
from mesos_gpu.local import leftovers
from tests.doubles import dockerd
from tests.runner import again, budget, progress, retries, tiers

POLL_S = 0.2
TELL_S = 2.0  # for xdist to tell of a worker that died, before its run is interrupted
SETTLE_S = 10.0  # for what a test ended without waiting for it
FAILED, SIGNALLED = 1, 128
#: Each of the thousands of processes that tests start would compile its modules anew.
_NOT_PASSED_ON = {"PYTHONDONTWRITEBYTECODE"}


class Run:
    """A run of pytest, from its start until nothing of it is left.

    Args:
        arguments: Of pytest.
        limit_s: The whole run is killed after that time.
        stuck_s: The run is killed when no test began or ended for that time, or one test took it.
        grace_s: For pytest to end by a signal, with its summary, before it is killed.
        second_try: Whether tests that failed are run once more.
        burners: Processes that compute beside the first try, as load.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        limit_s: float,
        stuck_s: float,
        grace_s: float,
        second_try: bool,
        burners: int = 0,
    ) -> None:
        """Nothing runs yet."""
        self._arguments, self._limit_s, self._stuck_s, self._grace_s = arguments, limit_s, stuck_s, grace_s
        self._second_try, self._burners, self._burning = second_try, burners, set[int]()
        self._began_at = self._ran_at = time.monotonic()  # the run; the last beginning or end of a test
        # A short name, for paths of sockets are below it; for root where tasks see it, who have a /tmp of their own.
        place = "/srv" if os.geteuid() == 0 and os.path.isdir("/srv") else None
        self._directory = Path(tempfile.mkdtemp(prefix="mgr-", dir=place))
        self._progress, self._temporary = self._directory / "progress", self._directory / "tmp"
        self._asked: int | None = None  # the signal that ends this run
        self._trouble: list[str] = []

    def __call__(self) -> int:
        """The exit status: pytest's, or FAILED where pytest's would be 0 and something went wrong."""
        processes.become_subreaper()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask)
        for path, mode in (self._directory, 0o755), (self._progress, 0o755), (self._temporary, 0o1777):
            path.mkdir(exist_ok=True)
            path.chmod(mode)
        try:
            status = self._pass("first", self._arguments)
            if self._second_try and status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                status = self._again(status)
            first = again.read(self._directory / "first")
            if status == 0 and not self._trouble and first is not None and first.groups:
                tiers.record_passed(first.groups)
        finally:
            self._remove()
        if self._trouble:
            print("", *(f"FAILED {line}" for line in self._trouble), sep="\n", file=sys.stderr, flush=True)
        return status or (FAILED if self._trouble else 0)

    def _pass(self, name: str, arguments: Sequence[str]) -> int:
        """Run pytest until nothing of it is left; its exit status."""
        command = [sys.executable, "-m", "pytest", "-p", progress.__name__, "-p", again.__name__, *arguments]
        mine = {progress.VARIABLE: str(self._progress), "TMPDIR": str(self._temporary)}
        mine[again.VARIABLE] = str(self._directory / name)
        # pytest's own directories stay where they are looked for after a failure.
        mine["PYTEST_DEBUG_TEMPROOT"] = tempfile.gettempdir()
        # A session of its own: a test that signals its own group does not end this process.
        env = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        self._ran_at = time.monotonic()
        if name == "first":
            burn = [sys.executable, "-c", "while True: pass"]
            self._burning = {subprocess.Popen(burn).pid for _ in range(self._burners)}
        child = subprocess.Popen(command, env={**env, **mine}, start_new_session=True)
        try:
            return self._watch(child.pid)
        finally:
            self._sweep()

    def _again(self, status: int) -> int:
        """Run the tests that failed once more, if nothing else went wrong; return the status of the whole run."""
        first = again.read(self._directory / "first")
        if self._trouble or self._asked is not None or first is None:
            return status
        if status == 0:
            self._remember({})
            return status
        if why := first.refusal():
            print(f"\nno second try: {why}", flush=True)
            return status
        number = len({**first.failed, **first.costly})
        print(f"\n{number} failed or above a cap: a second try, with nothing beside it", flush=True)
        second_status = self._pass("second", first.arguments())
        second = again.read(self._directory / "second")
        failed = first.still_failed(second) if second is not None else [*first.failed]
        self._remember({name: text for name, text in first.failed.items() if name not in failed})
        if second_status or failed:
            print("", *(f"FAILED also at the second try: {name}" for name in failed), sep="\n", flush=True)
            return status
        if not self._trouble:
            print(*again.words(first), sep="\n", flush=True)
        return 0

    def _remember(self, retried: dict[str, str]) -> None:
        """Add the tests that passed at the second try to the history. One that needed it too often is trouble."""
        path = retries.default_path()
        self._trouble += [
            f"{name}: passed at the second try twice in {retries.MAX_RUNS} runs ({path})"
            for name in retries.record(retried, path, retries.artefact_for(path))
        ]

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        self._asked = number

    def _watch(self, child: int) -> int:
        """Until pytest ended, or was killed; its exit status as a shell gives it."""
        due: list[tuple[float, int]] = []  # signals that end pytest, and when each is sent
        while (status := self._collect(child)) is None:
            now = time.monotonic()
            if not due and self._asked is not None:
                due = [(now, self._asked), (now + self._grace_s, signal.SIGKILL)]
            if not due and (why := self._wrong()):
                self._trouble += why
                print("\n" + "\n".join(why), file=sys.stderr, flush=True)
                due = [(now + TELL_S, signal.SIGINT), (now + self._grace_s, signal.SIGKILL)]
            while due and now >= due[0][0]:
                os.kill(child, due.pop(0)[1])
                due = due or [(now + self._grace_s, signal.SIGKILL)]
            time.sleep(POLL_S)
        if not self._trouble and self._asked is None:
            self._trouble += self._died()
            if status > SIGNALLED and not self._trouble:
                ran = [test.name for test in progress.read(self._progress) if test.busy]
                self._trouble.append(
                    f"pytest died by signal {status - SIGNALLED} during {', '.join(ran) or 'no test'}"
                )
        return status

    def _collect(self, child: int) -> int | None:
        """Collect all children that have ended: also orphans, which come to this process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return FAILED  # cannot be: pytest is collected here
            if pid == 0:
                return None
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else SIGNALLED - code

    def _wrong(self) -> list[str]:
        """Why this run cannot go on, each with the test; empty: it goes on."""
        if died := self._died():
            return died
        running = progress.read(self._progress)
        waited_s = time.monotonic() - self._began_at
        if waited_s > self._limit_s:
            return [
                f"{test.name}: runs while the whole run took {self._limit_s:g} s" for test in running
            ] or [f"the whole run took longer than {self._limit_s:g} s"]
        stuck = [test for test in running if test.busy and test.age_s > self._stuck_s]
        if stuck:
            return [
                f"{test.name}: not ended within {self._stuck_s:g} s (process {test.pid})" for test in stuck
            ]
        if running:
            self._ran_at = time.monotonic() - min(test.age_s for test in running)
        if time.monotonic() - self._ran_at > self._stuck_s:
            return [f"no test began within {self._stuck_s:g} s"]
        return []

    def _died(self) -> list[str]:
        return [
            f"{test.name}: the process that ran it died ({test.worker}, process {test.pid})"
            for test in progress.read(self._progress)
            if not test.alive
        ]

    def _sweep(self) -> None:
        """End what is left, and say what it was."""
        deadline = time.monotonic() + (0 if self._trouble or self._asked else SETTLE_S)
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if left and not self._trouble and self._asked is None:
            self._trouble += [f"left running: {words}" for words in left]
        if stuck := processes.kill_descendants():
            self._trouble.append(f"could not be killed: {stuck}")

    def _remove(self) -> None:
        """What a run that was killed has left of engines and clusters: mounts, cgroups, files."""
        for path in self._temporary.glob(f"{dockerd.PREFIX}*"):
            dockerd.Dockerd(left=path, bridged=True).close()
        for path in list(self._temporary.rglob(leftovers.RECORD)):
            leftovers.clean_up(path.parent)
        leftovers.unmount(self._temporary)
        budget.remove_left_groups()
        shutil.rmtree(self._directory)

    def _left(self) -> list[str]:
        processes.reap()
        left = []
        for pid in {*processes.descendants(os.getpid())} - self._burning:
            with contextlib.suppress(OSError):
                words = (
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                if words:  # a zombie has none
                    left.append(f"{pid} {words[:200]}")
        return left


def main(argv: Sequence[str]) -> int:
    """Run; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.runner.run", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--limit", type=float, default=3600.0, metavar="S", help="of the whole run, in seconds"
    )
    parser.add_argument("--stuck", type=float, default=600.0, metavar="S", help="of one test, in seconds")
    parser.add_argument(
        "--grace", type=float, default=20.0, metavar="S", help="to end by a signal, in seconds"
    )
    parser.add_argument(
        "--burn", type=int, default=0, metavar="N", help="let N processes compute beside the tests"
    )
    parser.add_argument("--again", action="store_true", help="run the tests that failed once more")
    own, rest = parser.parse_known_args(argv)
    return Run(rest, own.limit, own.stuck, own.grace, own.again, own.burn)()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
