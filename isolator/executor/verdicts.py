"""Ends of a task as verdicts, and lines of the executor's own log."""

import os
import signal
import sys
import time

from isolator.executor.life import Verdict
from isolator.host.not_started import NotStarted
from isolator.runs.run import Ended, Launch, Run
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.tasks.assignment import Outcome
from mesos_gpu.wire.plain import clean, clean_trace


def verdict_of(ended: Ended) -> Verdict:
    """Return the verdict on a command that was not ended by a kill request."""
    why = "".join(f": {text}" for text in (ended.why, ended.limit) if text)
    outcome = Outcome(exit_status=ended.exit_status, signal=ended.signal, infrastructure=ended.infrastructure)
    if ended.limit and ended.killed:
        return Verdict("TASK_FAILED", ended.limit, outcome)
    if ended.signal is not None:
        name = signal.strsignal(ended.signal) or "unknown"
        return Verdict("TASK_FAILED", f"Command terminated with signal {ended.signal} ({name}){why}", outcome)
    if ended.exit_status is None:
        return Verdict("TASK_FAILED", ended.why, outcome)
    state = "TASK_FINISHED" if ended.exit_status == 0 else "TASK_FAILED"
    return Verdict(state, f"Command exited with status {ended.exit_status}{why}", outcome)


def failure(error: Exception) -> Verdict:
    """Return the verdict on a task whose start or run raised an error; log unexpected errors with their traceback."""
    if isinstance(error, NotStarted):
        return Verdict("TASK_FAILED", str(error), error.outcome)
    if isinstance(error, MesosGpuError | OSError):  # a fault of this host: the task may run elsewhere
        text = f"the host cannot run the task: {error}"
    else:
        import traceback

        log("".join(traceback.format_exception(error)))
        text = f"the executor failed: {error!r}"
    return Verdict("TASK_FAILED", text, Outcome(infrastructure=True))


def log(text: str) -> None:
    """Write a time-stamped line to the executor's log; further lines of `text`, such as a traceback, are indented."""
    first, newline, rest = text.partition("\n")
    below = newline and newline + clean_trace(rest)
    print(f"{time.strftime('%H:%M:%S')} {clean(first)}{below}", file=sys.stderr, flush=True)


def say_of_share(launch: Launch, run: Run) -> None:
    """Write warnings about the task's share to the executor's log and the task's stderr."""
    from isolator.shares.variables import warnings_of

    for text in warnings_of(launch.given.notes if launch.given is not None else (), launch.plan.env):
        log(text)
        if (stream := run.streams()[1]) is not None:
            os.write(stream, f"[mesos-gpu] {text}\n".encode())
