"""What the doctor looks at, and what it says: a host below a root, and findings. Reads only."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from isolator.agent.docker_engine import DEFAULT_SOCKET
from isolator.gpus.ledger import Holding, Ledger
from mesos_gpu.model.nodes.gpu import Gpu, Inventory

#: "NVIDIA UNIX x86_64 Kernel Module  535.183.01", "NVIDIA UNIX Open Kernel Module for x86_64  575.57.08".
_DRIVER: Final = re.compile(r"^NVRM version:.*Kernel Module(?: +for \S+)? +(\d+(?:\.\d+)+)", re.M)


class Level(Enum):
    """How bad it is. WARN: something does not work, or soon will not; tasks may run."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `remedy` is empty where all is well."""

    check: str
    level: Level
    text: str
    remedy: str = ""


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """What a person reads of them."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        yield f"{finding.level.value:<4}  {finding.check:<{width}}  {finding.text}"
        if finding.remedy:
            yield f"{'':{width + 8}}To fix: {finding.remedy}"


@dataclass(frozen=True, slots=True)
class Host:
    """Where to look. `directory`: the node directory. `inventory`: what the probe says now; None: it failed.
    `env`: what the agent gives its executors."""

    directory: Path
    inventory: Inventory | None
    env: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path("/")

    @property
    def real(self) -> bool:
        """Whether this is the machine that we are on, and its kernel may be tried."""
        return self.root == Path("/")

    @property
    def simulated(self) -> bool:
        """Whether its GPUs are; then its driver, if any, is not ours."""
        return self.inventory is not None and self.inventory.source == "simulated"

    def text(self, path: str) -> str:
        """A file's text; empty if it is not there."""
        try:
            return (self.root / path).read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return ""

    def below(self, path: Path) -> Path:
        """A path of the host, below its root."""
        return self.root / path.relative_to("/")

    def driver_version(self) -> str | None:
        """The version of the loaded kernel module; None: none is loaded."""
        version = _DRIVER.search(self.text("proc/driver/nvidia/version"))
        return version[1] if version else None

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs of the inventory; empty where that could not be read."""
        return self.inventory.gpus if self.inventory else ()

    def docker_socket(self) -> Path:
        """Where a Docker Engine listens, if there is one."""
        return self.below(Path(self.env.get("MESOS_GPU_DOCKER_SOCKET") or DEFAULT_SOCKET))

    def ledger(self) -> Ledger | None:
        """Open the ledger; None: nothing was ever claimed here."""
        path = self.directory / "ledger.sqlite"
        return Ledger(path) if path.exists() else None

    def holdings(self) -> tuple[Holding, ...]:
        """All holdings of the ledger, of living tasks and of dead ones."""
        ledger = self.ledger()
        return ledger.holdings() if ledger else ()
