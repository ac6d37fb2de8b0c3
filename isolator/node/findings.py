"""Findings of the doctor, and read-only access to the host that it checks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from isolator.agent.docker_engine import DEFAULT_SOCKET
from isolator.gpus.ledger import Holding, Ledger
from mesos_gpu.model.nodes.gpu import Gpu, Inventory

#: Version in /proc/driver/nvidia/version, in lines like "NVIDIA UNIX x86_64 Kernel Module 535.183.01" and
#: "NVIDIA UNIX Open Kernel Module for x86_64 575.57.08".
_DRIVER: Final = re.compile(r"^NVRM version:.*Kernel Module(?: +for \S+)? +(\d+(?:\.\d+)+)", re.M)


class Level(Enum):
    """Severity of a finding. WARN: something does not work, or soon will not, but tasks may run."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Attributes:
        remedy: Advice for the operator; empty if nothing is wrong.
    """

    check: str
    level: Level
    text: str
    remedy: str = ""


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the findings as lines of text for operators."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        yield f"{finding.level.value:<4}  {finding.check:<{width}}  {finding.text}"
        if finding.remedy:
            yield f"{'':{width + 8}}To fix: {finding.remedy}"


@dataclass(frozen=True, slots=True)
class Host:
    """Host that is checked.

    Attributes:
        directory: The node directory.
        inventory: Current report of the GPU probe; None if it failed.
        env: Environment that the agent gives to executors.
        root: Root directory of the host.
    """

    directory: Path
    inventory: Inventory | None
    env: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path("/")

    @property
    def real(self) -> bool:
        """Whether this is the machine that the process runs on, so its kernel may be tried."""
        return self.root == Path("/")

    @property
    def simulated(self) -> bool:
        """Whether the GPUs are simulated; a driver of the host, if any, is not used then."""
        return self.inventory is not None and self.inventory.source == "simulated"

    def text(self, path: str) -> str:
        """Return a file's text; empty if the file does not exist."""
        try:
            return (self.root / path).read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def below(self, path: Path) -> Path:
        """Return a path of the host below its root."""
        return self.root / path.relative_to("/")

    def driver_version(self) -> str | None:
        """Return the version of the loaded kernel module; None if no driver is loaded."""
        version = _DRIVER.search(self.text("proc/driver/nvidia/version"))
        return version[1] if version else None

    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPUs of the inventory; empty if it could not be read."""
        return self.inventory.gpus if self.inventory else ()

    def docker_socket(self) -> Path:
        """Return the path where a Docker Engine would listen."""
        return self.below(Path(self.env.get("MESOS_GPU_DOCKER_SOCKET") or DEFAULT_SOCKET))

    def ledger(self) -> Ledger | None:
        """Open the ledger; None if nothing was ever claimed on this host."""
        path = self.directory / "ledger.sqlite"
        return Ledger(path) if path.exists() else None

    def holdings(self) -> tuple[Holding, ...]:
        """Return all holdings of the ledger, of living and of dead tasks."""
        ledger = self.ledger()
        return ledger.holdings() if ledger else ()
