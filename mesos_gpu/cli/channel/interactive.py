"""`mesos-gpu run -it`: a job whose command has this stdin, or this terminal.

The job's own command waits for a session, and ends with it; the command that is asked for is run in it through a
channel, as `exec` does. So it is the same for programs of the host and of any image, what it reads and writes keeps its
bytes, and a connection that is lost leaves no job that holds GPUs for nobody.
"""

import contextlib
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App
from mesos_gpu.cli.client import Client, ended
from mesos_gpu.cli.interrupt import Terminated, held_interrupt, terminated
from mesos_gpu.cli.waiting import INTERRUPTED, KILLED, UNSURE, exit_code_of, outcome, show_waiting
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.wire.plain import clean

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Job

WAITING_S: Final = 5.0  # until it is asked again why it waits
COME_S: Final = 120  # for the session; then the job ends
_SHOWN: Final = 200  # characters of the command
_OF: Final = ": session of: "  # what the command of such a job begins with
_PLACE: Final = 'f="${MESOS_SANDBOX:-${MESOS_DIRECTORY:-.}}/.session"'
#: The job's command: waits for the session, and ends with its exit code, or as by SIGHUP if it has left none.
_HOLDS: Final = (
    f'{_PLACE}; n=0; until [ -s "$f" ]; do n=$((n+1)); [ $n -le {COME_S} ] || '
    "{ echo 'nobody came to the session' >&2; exit 1; }; sleep 1; done; "
    'read -r pid < "$f"; while [ -d "/proc/$pid" ]; do sleep 1; done; '
    'code=129; [ ! -s "$f.code" ] || read -r code < "$f.code"; exit "$code"'
)
#: What runs the command that is asked for: signals are for that one.
_RUNS: Final = (
    f'{_PLACE}; trap : INT QUIT TERM USR1 USR2; echo $$ > "$f"; '
    '"$@"; code=$?; echo $code > "$f.code"; exit $code'
)


def held(request: dict[str, Any]) -> list[str]:
    """Make a request that of a job that holds a session; the words of the command that it asked for."""
    argv = request.pop("argv", None) or []
    if line := request.pop("command", None):
        argv = ["/bin/sh", "-c", line]
    argv = argv or ["/bin/sh"]
    # What it is for is seen in `show`. The job's shell must take it as one word, and run nothing that stands in it.
    request["command"] = f"{_OF}{shlex.quote(clean(shlex.join(argv))[:_SHOWN])}; {_HOLDS}"
    return ["/bin/sh", "-c", _RUNS, "sh", *argv]


def is_session(job: "Job") -> bool:
    """Whether a job holds a session: what its command writes goes to who runs it, and is not in its logs."""
    return (job["command"] or "").startswith(_OF)


def run_interactively(app: App, request: dict[str, Any], *, stdin: bool, tty: bool) -> int:
    """Submit a job, wait until it runs, and be its command's terminal or files until that ends; its exit code.

    Raises:
        Conflict, Unreachable, BadAnswer, BrokenPipeError: As of `Session.run`; the job has been asked to end.
    """
    from mesos_gpu.cli.channel.commands import in_task

    argv = held(request)
    return with_job(
        app.client(),
        request,
        lambda job: in_task(app, job["id"], argv, rank=0, stdin=stdin, tty=tty),
        names_it=output.status_line.live,
    )


def with_job(
    client: Client, request: dict[str, Any], serve: "Callable[[Job], int]", *, names_it: bool
) -> int:
    """Submit a job that is there for this process alone: whatever ends this, the job is asked to end, too.

    Args:
        client: Submits it, and looks whether it runs.
        request: What is submitted.
        serve: Does what the job is for, when it runs; gives an exit code.
        names_it: Whether its ID is told on stderr.

    Returns:
        An exit code: of `serve`; of the job, if it ended before it ran; or of the signal that ended this.
    """
    with terminated():
        job: Job | None = None
        try:
            with held_interrupt():
                job = client.submit(request)
            if names_it:
                kept = ": what it writes comes here, and is not in its logs" if is_session(job) else ""
                output.note(f"job {job['id']}{kept}")
            job = running(client, job, show_waiting(client))
            output.status_line.clear()  # the job's own output may follow on this terminal
            return told_end(job) if ended(job) else serve(job)
        except KeyboardInterrupt as signal:
            end_job(client, job)
            return KILLED if isinstance(signal, Terminated) else INTERRUPTED
        except BaseException:
            if job is not None:  # else the error says what became of the submission
                end_job(client, job)
            raise
        finally:
            output.status_line.clear()


def told_end(job: "Job") -> int:
    """Say how a job ended; its exit code."""
    output.note(outcome(job))
    return exit_code_of(job)


def running(client: Client, job: "Job", waiting: "Callable[[Job], None]") -> "Job":
    """The job when it runs, or has ended."""
    while not ended(job) and job["state"] != "running":
        waiting(job)
        job = client.job(job["id"], after_version=job["version"], timeout_s=WAITING_S)
    return job


def end_job(client: Client, job: "Job | None") -> None:
    """Ask for its end, as its session has one; None: it is not known whether it was submitted."""
    if job is None:
        output.note(UNSURE)
        return
    with contextlib.suppress(MesosGpuError):  # it ends by itself when its session has
        client.kill(job["id"])
