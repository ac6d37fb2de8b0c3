"""`mesos-gpu run -it`: a job whose command uses this stdin or terminal.

The job's own command waits for a session, and ends with it; the requested command runs in the session through a
channel, like `exec`. This works equally for host programs and any image, preserves all bytes, and a lost connection
leaves no job that holds GPUs without a user.
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

WAITING_S: Final = 5.0  # interval of requests for the reason of waiting
COME_S: Final = 120  # seconds to wait for the session before the job ends
_SHOWN: Final = 200  # characters of the command in the job's description
_OF: Final = ": session of: "  # prefix of the command of such a job
_PLACE: Final = 'f="${MESOS_SANDBOX:-${MESOS_DIRECTORY:-.}}/.session"'
#: Command of the job: it waits for the session and ends with its exit code, or as by SIGHUP if there is no code.
_HOLDS: Final = (
    f'{_PLACE}; n=0; until [ -s "$f" ]; do n=$((n+1)); [ $n -le {COME_S} ] || '
    "{ echo 'no session connected in time' >&2; exit 1; }; sleep 1; done; "
    'read -r pid < "$f"; while [ -d "/proc/$pid" ]; do sleep 1; done; '
    'code=129; [ ! -s "$f.code" ] || read -r code < "$f.code"; exit "$code"'
)
#: Wrapper of the requested command, which ignores signals because they are for the command.
_RUNS: Final = (
    f'{_PLACE}; trap : INT QUIT TERM USR1 USR2; echo $$ > "$f"; '
    '"$@"; code=$?; echo $code > "$f.code"; exit $code'
)


def held(request: dict[str, Any]) -> list[str]:
    """Turn a request into that of a job that holds a session; return the arguments of the requested command."""
    argv = request.pop("argv", None) or []
    if line := request.pop("command", None):
        argv = ["/bin/sh", "-c", line]
    argv = argv or ["/bin/sh"]
    # Shows in `show` what the session is for. The job's shell must take it as one word without running any of it.
    request["command"] = f"{_OF}{shlex.quote(clean(shlex.join(argv))[:_SHOWN])}; {_HOLDS}"
    return ["/bin/sh", "-c", _RUNS, "sh", *argv]


def is_session(job: "Job") -> bool:
    """Return whether a job holds a session: its output goes to the session's user, not to its logs."""
    return (job["command"] or "").startswith(_OF)


def run_interactively(app: App, request: dict[str, Any], *, stdin: bool, tty: bool) -> int:
    """Submit a job, wait until it runs, connect this terminal or files to it; return its command's exit code.

    Raises:
        Conflict, Unreachable, BadAnswer, BrokenPipeError: Raised by `Session.run`; the job has been asked to end.
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
    """Submit a job that lives as long as this process: whatever ends this process also ends the job.

    Args:
        client: Client that submits the job and polls its state.
        request: Request to submit.
        serve: Function that uses the running job, and returns an exit code.
        names_it: Whether to print the job's ID on stderr.

    Returns:
        The exit code of `serve`; of the job, if it ended before it ran; or for the signal that ended this process.
    """
    with terminated():
        job: Job | None = None
        try:
            with held_interrupt():
                job = client.submit(request)
            if names_it:
                kept = ": its output is shown here, not stored in its logs" if is_session(job) else ""
                output.note(f"job {job['id']}{kept}")
            job = running(client, job, show_waiting(client))
            output.status_line.clear()  # the job's own output may follow on this terminal
            return told_end(job) if ended(job) else serve(job)
        except KeyboardInterrupt as signal:
            end_job(client, job)
            return KILLED if isinstance(signal, Terminated) else INTERRUPTED
        except BaseException:
            if job is not None:  # otherwise the error tells what happened to the submission
                end_job(client, job)
            raise
        finally:
            output.status_line.clear()


def told_end(job: "Job") -> int:
    """Print how a job ended; return its exit code."""
    output.note(outcome(job))
    return exit_code_of(job)


def running(client: Client, job: "Job", waiting: "Callable[[Job], None]") -> "Job":
    """Wait until a job runs or has ended; return it."""
    while not ended(job) and job["state"] != "running":
        waiting(job)
        job = client.job(job["id"], after_version=job["version"], timeout_s=WAITING_S)
    return job


def end_job(client: Client, job: "Job | None") -> None:
    """Ask the scheduler to end the job; with None, warn that it may have been submitted."""
    if job is None:
        output.note(UNSURE)
        return
    with contextlib.suppress(MesosGpuError):  # the job also ends by itself with its session
        client.kill(job["id"])
