"""What operators choose for hosts that share GPUs: variables of agents, some of which a scheduler may set for all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable of executors and node monitors with a few values.

    Attributes:
        name: Of the variable.
        values: All that it may have; the first is the default.
    """

    name: str
    values: tuple[str, ...]

    def of(self, env: Mapping[str, str]) -> str:
        """Read the value; of one that is not set, or is empty, the default.

        Raises:
            BadConfiguration: It is none of them.
        """
        value = env.get(self.name) or self.values[0]
        if value in self.values:
            return value
        *others, last = self.values
        raise BadConfiguration(f"{self.name} is {value!r}", remedy=f"set it to {', '.join(others)} or {last}")


#: Whether MIG instances are shares: those that an operator made; also those that the host makes; or none.
MIG: Final = Choice("MESOS_GPU_MIG", ("static", "dynamic", "off"))
#: Percentages of a card's compute that MPS may be told: those with which results were right, or any.
MPS_PERCENTAGES: Final = Choice("MESOS_GPU_MPS_PERCENTAGES", ("measured", "any"))
#: Whose tasks may share a server of MPS: one user's, or all users'. No scheduler sets it: hosts protect their tasks.
MPS_USERS: Final = Choice("MESOS_GPU_MPS_USERS", ("own", "all"))
