"""What an operator may set of the engine's behaviour."""

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
#: Resources of an executor; its processors come out of those of its task (`footprint`). They are Mesos' minimum
#: (master/constants.hpp, MIN_CPUS); it stays under 35 MiB, and the rest is room for its children's start.
EXECUTOR: Final = Resources(cpus=0.01, mem_mib=48)
MONITOR: Final = Resources(cpus=0.02, mem_mib=96)  # of a node, its executor included
#: Of the executor that holds a node's shared cards. With the processors it is the least that a master offers
#: (--min_allocatable_resources), so that what is reserved for it comes back in an offer.
KEEPER: Final = Resources(cpus=0.01, mem_mib=32)
COVER: Final = Resources(cpus=0.001, mem_mib=1, gpus=1)  # of each task of it, one for each shared card


@cache
def _made_by(*parts: object) -> str:
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Programs that the scheduler starts on agents. Times in seconds, memory in MiB."""

    executor_command: str  # the shell command that starts an executor on an agent
    monitor_command: str
    keeper_command: str = "mesos-gpu-keeper"
    default_user: str | None = None  # for jobs that name none; None: the executor's own
    control_ports: tuple[ControlPort, ...] = ()  # of the REST interface
    control_access: Mapping[str, tuple[Control, ...]] = field(default_factory=dict)  # as of `Permits`
    sealed: bool = False  # whether executors are told a secret that their updates are sealed with
    executor_env: Mapping[str, str] = field(default_factory=dict)
    scheduler_url: str = ""  # where executors find the REST interface
    executor: Resources = EXECUTOR
    monitor: Resources = MONITOR
    keeper: Resources = KEEPER
    cover: Resources = COVER
    log_limit_mib: int = LOG_LIMIT_MIB  # that stdout and stderr of a task may each keep; 0: all
    report_interval_s: float = 10.0
    report_stale_s: float = 30.0  # an older report is no knowledge: its GPUs are not given out

    @property
    def monitor_made_by(self) -> str:
        """What tells a monitor that is started with these settings from others, 16 hexadecimal digits."""
        env = tuple(sorted(self.executor_env.items()))
        return _made_by(self.monitor_command, env, self.report_interval_s, WIRE)


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """Reads of the store of secrets. Times in seconds, memory in MiB."""

    secrets: bool = False  # whether there is a store of them: each agent's monitor has a key for it
    secrets_fresh_s: float = 20.0  # then a value is read again, as long as a job waits for it
    secrets_stale_s: float = 60.0  # an older value is given to nobody
    secrets_answer_s: float = 60.0  # then a store that has not answered is asked again
    secrets_first_s: float = 1.0  # after the first failure
    secrets_most_s: float = 60.0


@dataclass(frozen=True, slots=True)
class MesosSettings:
    """Roles, offers and the master's view of tasks. Times in seconds, memory in MiB."""

    role: str = "*"  # of the framework; of another one the GPUs of shared cards are reserved
    role_of: Mapping[str, str] = field(
        default_factory=dict
    )  # by top queue, for all below it; `role` for others
    principal: str | None = None  # of the framework, as reservations name it
    reserve_again_s: float = 3600.0  # after the master refused a reservation
    offer_hold_s: float = 30.0  # how long an offer that fits nothing is kept from other frameworks
    offer_refuse_s: float = 5.0
    idle_linger_s: float = 1.0  # after the last job is placed, before offers are given back
    idle_refuse_s: float = 3600.0
    sweep_interval_s: float = 20.0  # while suppressed: how often to ask for offers, to find new agents
    offer_return_s: float = (
        60.0  # until then what an agent no longer offers is taken to be on its way; half of it at least
    )
    unreachable_timeout_s: float = 120.0  # then the job goes back to the queue
    reconcile_first_s: float = 1.0
    reconcile_most_s: float = 30.0
    reconcile_interval_s: float = 900.0

    @property
    def roles(self) -> tuple[str, ...]:
        """All roles of the framework, the default one first."""
        return self.role, *self.role_of.values()

    @property
    def reserves(self) -> bool:
        """Whether something may be reserved for one of them."""
        return self.role != "*" or bool(self.role_of)

    def role_for(self, queue: str) -> str:
        """The role of whose offers a queue's jobs are launched."""
        return self.role_of.get(queue.partition("/")[0], self.role) if self.role_of else self.role


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Upkeep of tasks: requests that are repeated, and tries after failures. Times in seconds, memory in MiB."""

    tend_interval_s: float = 0.2  # at the earliest: kills to be repeated, tasks to be asked about or given up
    apps_interval_s: float = 2.0  # at the latest: whether each app is as it shall be
    kill_resend_s: float = 10.0
    reset_resend_s: float = 3.0
    reset_timeout_s: float = 60.0  # then the node is taken to be deaf
    start_resend_s: float = 2.0  # the word to a gang's members that they may start
    resize_resend_s: float = 2.0  # to an executor that has not answered
    notice_resend_s: float = 2.0  # likewise, of a notice
    checkpoint_again_s: float = 10.0  # from one that a job tells of to the next, at least
    most_notice_s: float = 600.0  # of a job whose queue says nothing of notices
    launch_doubt_s: float = 10.0  # a launch without a word is asked about
    retry_first_s: float = 1.0
    retry_most_s: float = 60.0
    requeue_first_s: float = 0.1
    requeue_most_s: float = 30.0
    max_infrastructure_failures: int = 50
    roll_interval_s: float = 2.0  # between looks for monitors that are to be replaced
    roll_timeout_s: float = 60.0  # then a new one that has not reported well ends the roll


@dataclass(frozen=True, slots=True)
class PlacingSettings:
    """Placement of tasks on nodes and GPUs. Times in seconds, memory in MiB."""

    match_interval_s: float = 1.0  # at the latest: what time alone changes, as the order of the queue
    placement: Placement = Placement.BUNDLE  # of jobs that ask for none
    placement_of: Mapping[str, Placement] = field(default_factory=dict)  # by app, before the former
    gpu_nodes: GpuNodes = GpuNodes.LAST  # for work without GPUs
    levels: tuple[str, ...] = ()  # attributes of agents that are levels of the fabric, the outermost first
    contested_s: float = 5.0  # a GPU whose claim was refused is left alone for so long
    isolation: Isolation = Isolation.SHARED  # of shares whose jobs ask for none
    gpu_compute_overcommit: float = (
        1.0  # how often the compute of a shared card may be promised; memory never is
    )
    cpus_per_gpu: float = 4.0  # most of jobs with GPUs that name no CPUs; 0: as of others
    mem_mib_per_gpu: int = 8192  # likewise, of memory
    mps_across_users: bool = False  # whether users may share a server of MPS, where hosts permit it, too
    on_gpu_excess: OnExcess = OnExcess.END  # of tasks that use more memory than their share
    cover_linger_s: float = 60.0  # how long a card stays open to shares when nobody has one of it
    open_after_s: float = (
        2.0  # so long a share waits for the offer of an open card before it has another opened
    )
    uncovered_alarm_s: float = (
        300.0  # how long no task may hold a shared card in Mesos before somebody is told
    )


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Order and limits of the queue, and preemption. Times in seconds, memory in MiB."""

    preemption: bool = True  # whether a job may end preemptible ones of lower priority
    preempt_after_s: float = 3.0  # until then what is free has been offered, and nobody need be ended
    restart_s: float = 60.0  # what a stopped job loses by starting again, beside its work since a checkpoint
    preempt_again_s: float = 30.0  # if somebody else took the room that was made for it
    queue_limits: Mapping[str, int] = field(default_factory=dict)  # GPUs that a queue's jobs may hold at once
    user_quota: Quota = field(default_factory=Quota)  # of each user
    queue_quota: Quota = field(default_factory=Quota)  # of each queue
    aging_step_s: float = 3600.0  # a job that waits gains one of priority for each; infinite: never
    most_reservations: int = 10  # one a queue, for the first that is blocked; so many queues at most
    max_array: int = 10_000  # tasks of one job array
    user_volumes_mib: int = 102_400  # of all named volumes of one owner; 0: any


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Time and number of what is kept after its end. Times in seconds, memory in MiB."""

    keep_ended_jobs: int = 5000
    keep_lost_nodes_s: float = 86400.0
    keep_spans_s: float = 400 * 86400.0  # of use, one by one; then they are summed up by days


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the engine, by what they are about."""

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
