"""Settings of hosts that share GPUs: environment variables of agents, some of which a scheduler may set for all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mesos_gpu.errors import BadConfiguration


@dataclass(frozen=True, slots=True)
class Choice:
    """An environment variable of executors and node monitors with a fixed set of values.

    Attributes:
        name: Name of the variable.
        values: Permitted values, the default first.
    """

    name: str
    values: tuple[str, ...]

    def of(self, env: Mapping[str, str]) -> str:
        """Return the value of the variable, or the default if it is unset or empty.

        Raises:
            BadConfiguration: The variable has another value.
        """
        value = env.get(self.name) or self.values[0]
        if value in self.values:
            return value
        *others, last = self.values
        raise BadConfiguration(f"{self.name} is {value!r}", remedy=f"set it to {', '.join(others)} or {last}")


#: Use of MIG instances as shares: only those created by an operator, also those created by the host, or none.
MIG: Final = Choice("MESOS_GPU_MIG", ("static", "dynamic", "off"))
#: Percentages of compute that may be set for MPS: those for which measurements were right, or any.
MPS_PERCENTAGES: Final = Choice("MESOS_GPU_MPS_PERCENTAGES", ("measured", "any"))
#: Whether an MPS server serves one user's tasks or all users'. Only the host may set it, to protect its tasks.
MPS_USERS: Final = Choice("MESOS_GPU_MPS_USERS", ("own", "all"))
