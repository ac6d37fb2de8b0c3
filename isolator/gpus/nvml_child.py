"""Single NVML operations in a child process with a deadline: a driver that hangs blocks the child, and never
the caller.

A line of JSON each way. `ask` is the parent's side; `main` the child's (`python -m isolator nvml`).
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from isolator import program
from mesos_gpu.errors import Conflict, MesosGpuError, Unavailable

DEADLINE_S: Final = 15.0  # a driver without its persistence daemon takes seconds to wake a card
KILL_S: Final = 1.0
TRIAL_MIB: Final = 1024
COMMAND: Final = program.command("nvml")


class NvmlCalls:
    """Client of NVML that starts a child process for each call.

    Args:
        libraries: Directory of NVML's library that goes before the host's, or None.
        command: Command of the child.
        deadline_s: Seconds until the child is given up.
    """

    def __init__(
        self,
        libraries: Path | None = None,
        *,
        command: Sequence[str] = COMMAND,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._libraries, self._command, self._deadline_s = libraries, command, deadline_s

    def ask(self, what: str, **arguments: Any) -> Any:
        """Carry out one of `ORDERS` in a child, and return its answer.

        Raises:
            Conflict: Resources in use prevent it.
            Unavailable: The driver fails, does not answer in time, or is not installed.
        """
        path = [str(self._libraries)] if self._libraries else []
        path += [part for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
        env = {**os.environ, **({"LD_LIBRARY_PATH": ":".join(path)} if path else {})}
        child = subprocess.Popen(
            self._command,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            output, _ = child.communicate(
                json.dumps({"what": what, "arguments": arguments}), timeout=self._deadline_s
            )
        except subprocess.TimeoutExpired:
            _give_up(child)
            raise Unavailable(
                f"the driver did not answer within {self._deadline_s:g} s",
                remedy="see dmesg; the card may need a reset, or the host a reboot",
            ) from None
        try:
            answer: dict[str, Any] = json.loads(output)
        except ValueError:
            raise Unavailable(
                f"the process that calls the driver crashed (exit code {child.returncode})",
                remedy="see dmesg",
            ) from None
        if "failed" in answer:
            kind = Conflict if answer["conflict"] else Unavailable
            raise kind(answer["failed"], remedy=answer["remedy"])
        return answer["answer"]


def _give_up(child: subprocess.Popen[str]) -> None:
    """Kill the child without waiting long, as it may be blocked in the kernel."""
    child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(KILL_S)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


# --- the child


def main() -> int:
    """Run the child, `python -m isolator nvml`; return the exit code."""
    from mesos_gpu.adapters.nvml.session import load

    return serve(load())


def serve(lib: Any) -> int:
    """Carry out the order on stdin, and print the answer.

    Args:
        lib: The pynvml module, or a fake of it; None if not installed.
    """
    order = json.load(sys.stdin)
    try:
        answer = {"answer": carry_out(lib, order["what"], order["arguments"])}
    except MesosGpuError as error:
        answer = {"failed": error.what, "remedy": error.remedy, "conflict": isinstance(error, Conflict)}
    print(json.dumps(answer), flush=True)
    return 0


def carry_out(lib: Any, what: str, arguments: Mapping[str, Any]) -> Any:
    """Carry out one of `ORDERS` in this process, and return the answer.

    Raises:
        Conflict: Resources in use prevent it.
        Unavailable: The driver fails, or is not installed.
    """
    if lib is None:
        raise Unavailable(
            "the Python package nvidia-ml-py is not installed", remedy="pip install nvidia-ml-py"
        )
    try:
        lib.nvmlInit()
    except lib.NVMLError as error:
        raise Unavailable(f"NVML failed: {error}", remedy="run nvidia-smi on this host") from error
    try:
        return ORDERS[what](lib, **arguments)
    except lib.NVMLError as error:
        raise Unavailable(f"NVML failed: {error}", remedy="run nvidia-smi on this host") from error
    finally:
        lib.nvmlShutdown()


def _read_limits(lib: Any, uuid: str, cgroup: str) -> Any:
    from mesos_gpu.adapters.nvml.limits import read_limits

    limits = read_limits(lib, uuid, cgroup)
    return None if limits is None else asdict(limits)


def _set_limits(lib: Any, uuids: Sequence[str], cgroup: str, soft_mib: int, hard_mib: int | None) -> None:
    from mesos_gpu.adapters.nvml.limits import Limits, set_limits

    for uuid in uuids:
        set_limits(lib, uuid, cgroup, Limits(soft_mib, hard_mib))


def _try_limits(lib: Any, uuids: Sequence[str], cgroup: str) -> dict[str, str]:
    """Set and remove a limit for each card; return the error for each, "" if it worked."""
    problems = {}
    for uuid in uuids:
        try:
            _set_limits(lib, [uuid], cgroup, 0, TRIAL_MIB)
            _set_limits(lib, [uuid], cgroup, 0, None)
            problems[uuid] = ""
        except MesosGpuError as error:
            problems[uuid] = error.what
    return problems


def _make_instance(lib: Any, uuid: str, profile: str, start: int) -> dict[str, Any]:
    from mesos_gpu.adapters.nvml.mig import make_instance

    return asdict(make_instance(lib, uuid, profile, start))


def _remove_instance(lib: Any, uuid: str, profile: str, start: int) -> None:
    from mesos_gpu.adapters.nvml.mig import remove_instance

    remove_instance(lib, uuid, profile, start)


#: Operations that a child can carry out.
ORDERS: Final[Mapping[str, Callable[..., Any]]] = {
    "limits": _read_limits,
    "limit": _set_limits,
    "try limits": _try_limits,
    "make instance": _make_instance,
    "remove instance": _remove_instance,
}
