"""The compute mode of a card, set while a daemon of MPS shares it: EXCLUSIVE_PROCESS lets that daemon's server in, and
nobody who would go round it.

A child of its own speaks to the driver, where any call may hang: it is started early, and waited for until a deadline.
What the mode was is written down before it is changed. A reboot forgets the mode, and the note, which is on /run.
Source: NVIDIA's NVML API reference, nvmlDeviceSetComputeMode.
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
    """Where the child finds NVIDIA's bindings, and the driver's libraries (None: where the host has them)."""

    bindings: Path
    libraries: Path | None = None


def nvml_of(libraries: Path | None = None) -> Nvml | None:
    """The bindings that this program was installed with; None: there are none."""
    spec = importlib.util.find_spec("pynvml")
    return None if spec is None or spec.origin is None else Nvml(Path(spec.origin).parent, libraries)


@dataclass(frozen=True, slots=True)
class Change:
    """A change under way."""

    process: subprocess.Popen[str]

    def wait(self) -> str:
        """Why it failed; "": it is done."""
        try:
            said, _ = self.process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # it may be in the kernel, and stay there
                self.process.wait(KILL_S)
            if self.process.stdout is not None:
                self.process.stdout.close()
            return f"the driver did not answer within {DEADLINE_S:g} s"
        return "" if self.process.returncode == 0 else (said.strip().splitlines() or ["it crashed"])[-1]


def begin_exclusive(nvml: Nvml, gpu: str, note: Path) -> Change:
    """Begin to set EXCLUSIVE_PROCESS. `note`: where the mode before is kept, unless one is kept there already."""
    return _begin(nvml, gpu, "exclusive", note)


def begin_undo(nvml: Nvml, gpu: str, note: Path) -> Change:
    """Begin to set what the note says, and remove it; without a note nothing is done."""
    return _begin(nvml, gpu, "undo", note)


def _begin(nvml: Nvml, gpu: str, what: str, note: Path) -> Change:
    # Neither site packages nor a package of ours: both cost more than all else that the child does.
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
