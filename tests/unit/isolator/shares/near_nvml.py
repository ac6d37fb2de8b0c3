"""Orders to a fake of NVML in the process of the test."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isolator.gpus.nvml_child import NvmlCalls, carry_out
from mesos_gpu.model.nodes.gpu import Gpu
from tests.doubles.nvml.fake import FakeNvml


class NearCalls(NvmlCalls):
    """`NvmlCalls` without a child.

    Args:
        gpus: GPUs of the driver.
        state: JSON file with the state of the driver.
    """

    def __init__(self, gpus: Sequence[Gpu], state: Path) -> None:
        super().__init__()
        self._gpus, self._state = gpus, state

    def ask(self, what: str, **arguments: Any) -> Any:
        """Carry out an order; it and the answer are written and read as JSON, as for a child."""
        order = json.loads(json.dumps(arguments))
        return json.loads(json.dumps(carry_out(FakeNvml(self._gpus, self._state), what, order)))
