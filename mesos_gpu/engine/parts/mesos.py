"""The framework's registration with the Mesos master."""

from dataclasses import dataclass, field

from mesos_gpu.engine.indexes.memory import Reconciliation, Roles
from mesos_gpu.engine.parts.metadata import DERIVED


@dataclass(slots=True)
class MesosPart:
    """Relation of the state to the Mesos master. Times are in seconds since the epoch.

    Attributes:
        framework_id: Id of the framework; None before the first registration.
        doubtful: Whether nothing may be launched before the master's tasks are known.
        connected: Whether the master's event stream is up.
        registered_at: Time of the latest registration.
        master_url: URL of the leading master.
        roles: Roles of the framework.
        role_asked_at: Time at which the master was last asked for its roles.
        reserve_from: Time until which nothing is reserved, because the master refused it.
        suppressed: Whether the master was asked to send no offers.
        idle_since: Time since which no job waits; None if one does.
        swept_at: Time at which offers were last asked for while they are suppressed.
        listing_at: Time at which the master was last asked for its tasks.
        reconciliation: Reconciliation of tasks in progress, or None.
        reconciled_at: Time at which the latest one ended.
        disbelieved: Number of status updates since the start that were not believed.
    """

    framework_id: str | None = None
    doubtful: bool = False
    connected: bool = False
    registered_at: float = 0.0
    master_url: str = ""
    roles: Roles = field(default_factory=Roles)
    role_asked_at: float = -1e12  # a time that never was
    reserve_from: float = 0.0
    suppressed: bool = False
    idle_since: float | None = None
    swept_at: float = 0.0
    listing_at: float = 0.0
    reconciliation: Reconciliation | None = None
    reconciled_at: float = 0.0
    disbelieved: int = field(default=0, compare=False, metadata=DERIVED)
