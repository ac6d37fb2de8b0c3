"""Compute mode of a card while an MPS daemon shares it: EXCLUSIVE_PROCESS admits only the daemon's server.

A child process talks to the driver, where any call may hang: it is started early, and waited for until a
deadline. The mode before is noted before it is changed. A reboot resets the mode, and removes the note, which
is on /run. Source: NVIDIA's NVML API reference, nvmlDeviceSetComputeMode.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEADLINE_S: Final = 15.0  # a driver without its persistence daemon takes seconds to wake a card
KILL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Nvml:
    """Python bindings of NVML, for a child process.

    Attributes:
        bindings: Directory of pynvml.
        libraries: Directory of the driver's libraries; None for the host's default.
    """

    bindings: Path
    libraries: Path | None = None


def nvml_of(libraries: Path | None = None) -> Nvml | None:
    """Return the bindings that this program was installed with, or None."""
    spec = importlib.util.find_spec("pynvml")
    return None if spec is None or spec.origin is None else Nvml(Path(spec.origin).parent, libraries)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the compute mode that is under way in a child process."""

    process: subprocess.Popen[str]

    def wait(self) -> str:
        """Wait for the end of the change; return the error, "" if it succeeded."""
        try:
            output, _ = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            # the child may be blocked in the kernel for good
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(KILL_S)
            if self.process.stdout is not None:
                self.process.stdout.close()
            return f"the driver did not answer within {DEADLINE_S:g} s"
        return "" if self.process.returncode == 0 else (output.strip().splitlines() or ["it crashed"])[-1]


def begin_exclusive(nvml: Nvml, gpu: str, note: Path) -> Change:
    """Start setting the mode to EXCLUSIVE_PROCESS.

    Args:
        nvml: Bindings for the child process.
        gpu: UUID of the card.
        note: File that keeps the mode before; one that exists is left as it is.
    """
    return _begin(nvml, gpu, "exclusive", note)


def begin_undo(nvml: Nvml, gpu: str, note: Path) -> Change:
    """Start restoring the mode that is noted, and removing the note; without a note nothing is done."""
    return _begin(nvml, gpu, "undo", note)


def _begin(nvml: Nvml, gpu: str, what: str, note: Path) -> Change:
    # No site packages, and no import of our packages: either costs more than all else that the child does.
    child = str(Path(__file__).with_name("compute_mode_child.py"))
    command = [sys.executable, "-I", "-S", child, str(nvml.bindings), gpu, what, str(note), str(os.getpid())]
    env = {"LD_LIBRARY_PATH": str(nvml.libraries)} if nvml.libraries else {}
    return Change(
        subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    )
