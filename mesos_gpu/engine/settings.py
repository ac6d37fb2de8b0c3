"""Settings of the engine, which an operator may change."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import Any, Final, get_type_hints

from mesos_gpu.engine.parts.metadata import PART, parts_by_field
from mesos_gpu.model.jobs.job import GpuNodes, Placement
from mesos_gpu.model.jobs.permits import Control
from mesos_gpu.model.jobs.quota import Quota
from mesos_gpu.model.nodes.control import ControlPort
from mesos_gpu.model.nodes.wires import WIRE
from mesos_gpu.model.resources import Resources
from mesos_gpu.model.shares.request import Isolation, OnExcess

LOG_LIMIT_MIB: Final = 1024
#: Resources of an executor; its CPUs come out of those of its task (`footprint`). They are the minimum of
#: Mesos (master/constants.hpp, MIN_CPUS). It uses less than 35 MiB; the rest is for the start of its child
#: processes.
EXECUTOR: Final = Resources(cpus=0.01, mem_mib=48)
MONITOR: Final = Resources(cpus=0.02, mem_mib=96)  # of a node monitor with its executor
#: Resources of a keeper (executor of cover tasks). With the CPUs it is the least that a master offers
#: (--min_allocatable_resources), so that resources reserved for it come back in an offer.
KEEPER: Final = Resources(cpus=0.01, mem_mib=32)
COVER: Final = Resources(cpus=0.001, mem_mib=1, gpus=1)  # of a cover task, one for each shared GPU


@cache
def _made_by(*parts: object) -> str:
    """Return a digest of some values, 16 hexadecimal digits."""
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Programs that the scheduler starts on agents. Times in seconds, memory in MiB."""

    executor_command: str  # shell command that starts an executor on an agent
    monitor_command: str
    keeper_command: str = "mesos-gpu-keeper"
    default_user: str | None = None  # Unix user of jobs without one; None for the user of the executor
    control_ports: tuple[ControlPort, ...] = ()  # ports of the REST interface, which tasks must not reach
    control_access: Mapping[str, tuple[Control, ...]] = field(default_factory=dict)  # see `Permits`
    sealed: bool = False  # whether executors get a secret with which they seal their updates
    executor_env: Mapping[str, str] = field(default_factory=dict)
    scheduler_url: str = ""  # URL of the REST interface for executors
    executor: Resources = EXECUTOR
    monitor: Resources = MONITOR
    keeper: Resources = KEEPER
    cover: Resources = COVER
    log_limit_mib: int = LOG_LIMIT_MIB  # size of stdout and of stderr of a task that is kept; 0 for no limit
    report_interval_s: float = 10.0
    report_stale_s: float = 30.0  # age at which a report no longer counts: GPUs are not granted by it

    @property
    def monitor_made_by(self) -> str:
        """Digest of all settings that a monitor is started with, 16 hexadecimal digits."""
        env = tuple(sorted(self.executor_env.items()))
        return _made_by(self.monitor_command, env, self.report_interval_s, WIRE)


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """Settings for reads of the secret store. Times in seconds, memory in MiB."""

    secrets: bool = False  # whether there is a secret store; monitors have keys for it then
    secrets_fresh_s: float = 20.0  # age at which a value is read again while a job waits for it
    secrets_stale_s: float = 60.0  # age from which a value is no longer used
    secrets_answer_s: float = 60.0  # time after which a store that has not answered is asked again
    secrets_first_s: float = 1.0  # delay after the first failure
    secrets_most_s: float = 60.0


@dataclass(frozen=True, slots=True)
class MesosSettings:
    """Settings for roles, offers and the reconciliation of tasks. Times in seconds, memory in MiB."""

    role: str = "*"  # default role; for a role other than "*" shared GPUs are reserved
    # Role of each top queue and the queues below; other queues have `role`.
    role_of: Mapping[str, str] = field(default_factory=dict)
    principal: str | None = None  # principal of the framework, which reservations name
    reserve_again_s: float = 3600.0  # delay after the master has refused a reservation
    offer_hold_s: float = 30.0  # time for which an offer that fits no job is held
    offer_refuse_s: float = 5.0
    idle_linger_s: float = 1.0  # time after the last placement before offers are given back
    idle_refuse_s: float = 3600.0
    sweep_interval_s: float = 20.0  # interval of requests for offers while suppressed, to find new agents
    # Time within which resources that an agent no longer offers count as on their way; at least half of it.
    offer_return_s: float = 60.0
    unreachable_timeout_s: float = 120.0  # time after which a job goes back to the queue
    reconcile_first_s: float = 1.0
    reconcile_most_s: float = 30.0
    reconcile_interval_s: float = 900.0

    @property
    def roles(self) -> tuple[str, ...]:
        """All roles of the framework, the default one first."""
        return self.role, *self.role_of.values()

    @property
    def reserves(self) -> bool:
        """Whether resources may be reserved for any role."""
        return self.role != "*" or bool(self.role_of)

    def role_for(self, queue: str) -> str:
        """Return the role from whose offers jobs of a queue are launched."""
        return self.role_of.get(queue.partition("/")[0], self.role) if self.role_of else self.role


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Settings for upkeep of tasks: repeated requests, and tries after failures. Times in seconds, memory in MiB."""

    tend_interval_s: float = 0.2  # shortest time between looks at all tasks, as to repeat kills
    apps_interval_s: float = 2.0  # longest time between looks at all apps
    kill_resend_s: float = 10.0
    reset_resend_s: float = 3.0
    reset_timeout_s: float = 60.0  # time after which a reset without an answer has failed
    start_resend_s: float = 2.0  # interval of repeated start messages to members of a gang
    resize_resend_s: float = 2.0  # interval of repeated resize requests without an answer
    notice_resend_s: float = 2.0  # interval of repeated notices without an answer
    checkpoint_again_s: float = 10.0  # shortest time between checkpoints that count
    most_notice_s: float = 600.0  # longest notice of a job whose queue sets none
    launch_doubt_s: float = 10.0  # age at which a launch without an update is reconciled
    retry_first_s: float = 1.0
    retry_most_s: float = 60.0
    requeue_first_s: float = 0.1
    requeue_most_s: float = 30.0
    max_infrastructure_failures: int = 50
    roll_interval_s: float = 2.0  # time between looks for monitors to replace
    roll_timeout_s: float = 60.0  # time after which a new monitor without a good report stops the roll


@dataclass(frozen=True, slots=True)
class PlacingSettings:
    """Settings for placement of tasks on nodes and GPUs. Times in seconds, memory in MiB."""

    match_interval_s: float = 1.0  # longest time between matches, as time alone changes the queue order
    placement: Placement = Placement.BUNDLE  # policy of jobs without one
    # Policy by app, which precedes `placement`.
    placement_of: Mapping[str, Placement] = field(default_factory=dict)
    gpu_nodes: GpuNodes = GpuNodes.LAST  # use of GPU nodes for work without GPUs
    levels: tuple[str, ...] = ()  # attributes of agents that are levels of the fabric, the outermost first
    contested_s: float = 5.0  # time without launches on a GPU whose claim was refused
    isolation: Isolation = Isolation.SHARED  # isolation of shares whose jobs ask for none
    # Factor by which the compute of a shared GPU may be promised to its shares; memory is never overcommitted.
    gpu_compute_overcommit: float = 1.0
    cpus_per_gpu: float = 4.0  # most default CPUs per GPU; 0 for the default of jobs without GPUs
    mem_mib_per_gpu: int = 8192  # most default memory per GPU; 0 for the default of jobs without GPUs
    mps_across_users: bool = False  # whether users may share an MPS server on hosts that permit it
    on_gpu_excess: OnExcess = OnExcess.END  # treatment of tasks that use more memory than their share
    cover_linger_s: float = 60.0  # time for which a GPU without shares stays open to shares
    # Time for which a share waits for an offer of an open GPU before another GPU is opened to shares.
    open_after_s: float = 2.0
    # Time for which a shared GPU may be without a cover task in Mesos before operators are alerted.
    uncovered_alarm_s: float = 300.0


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Settings for queue order, limits and preemption. Times in seconds, memory in MiB."""

    preemption: bool = True  # whether jobs may end preemptible jobs of lower priority
    preempt_after_s: float = 3.0  # wait before preemption, in which free resources are offered
    restart_s: float = 60.0  # cost of a restart beside the work since the last checkpoint
    preempt_again_s: float = 30.0  # wait before the next preemption for a job that lost its room
    # GPUs that jobs of a queue may hold at once.
    queue_limits: Mapping[str, int] = field(default_factory=dict)
    user_quota: Quota = field(default_factory=Quota)  # limits of each user
    queue_quota: Quota = field(default_factory=Quota)  # limits of each queue
    aging_step_s: float = 3600.0  # wait that raises priority by one; infinite for no aging
    most_reservations: int = 10  # most queues whose first blocked job has a reservation
    max_array: int = 10_000  # most tasks of one job array
    user_volumes_mib: int = 102_400  # size of all named volumes of one owner; 0 for any


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Settings for how long and how many records are kept. Times in seconds, memory in MiB."""

    keep_ended_jobs: int = 5000
    keep_lost_nodes_s: float = 86400.0
    keep_spans_s: float = 400 * 86400.0  # age at which accounting records are summed up by days


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the engine, by subject."""

    programs: ProgramSettings = field(metadata=PART)
    secret_store: SecretSettings = field(default_factory=SecretSettings, metadata=PART)
    mesos: MesosSettings = field(default_factory=MesosSettings, metadata=PART)
    tasks: TaskSettings = field(default_factory=TaskSettings, metadata=PART)
    placing: PlacingSettings = field(default_factory=PlacingSettings, metadata=PART)
    queue: QueueSettings = field(default_factory=QueueSettings, metadata=PART)
    memory: MemorySettings = field(default_factory=MemorySettings, metadata=PART)

    @classmethod
    def of(cls, executor_command: str, monitor_command: str, **values: Any) -> "Settings":
        """Return settings with the given values of fields of any part, and defaults of others."""
        bodies = _by_part(
            {"executor_command": executor_command, "monitor_command": monitor_command, **values}
        )
        return cls(**{part: _KINDS[part](**body) for part, body in bodies.items()})

    def changed(self, **values: Any) -> "Settings":
        """Return settings with other values of fields of any part."""
        bodies = _by_part(values)
        return replace(self, **{part: replace(getattr(self, part), **body) for part, body in bodies.items()})


_KINDS: Final[Mapping[str, type[Any]]] = get_type_hints(Settings)
_PART_WITH: Final = parts_by_field(Settings)


def _by_part(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return values of fields by the part that has the field.

    Raises:
        TypeError: No part has a field of such a name.
    """
    bodies: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        if name not in _PART_WITH:
            raise TypeError(
                f"no part of the settings has a field {name}; the fields are {', '.join(_PART_WITH)}"
            )
        bodies.setdefault(_PART_WITH[name], {})[name] = value
    return bodies
