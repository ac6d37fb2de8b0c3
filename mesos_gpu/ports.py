"""What the inside asks of the outside, as protocols. Adapters implement them; fakes pass the same suites."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from mesos_gpu.access.asked import Asked, Found
from mesos_gpu.errors import NoRoom
from mesos_gpu.model.access.record import AuditRecord
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.nodes.health import Survey
from mesos_gpu.model.nodes.role import Role
from mesos_gpu.model.past_jobs import Held, PastJob
from mesos_gpu.model.saves import Save, Saved
from mesos_gpu.model.tasks.event import LogEvent
from mesos_gpu.model.tasks.unknown import Listed
from mesos_gpu.model.usage import Closed
from mesos_gpu.policy.accounts.sums import Row


class Clock(Protocol):
    """The time of day."""

    def now(self) -> float:
        """Seconds since the epoch."""


class Store(Protocol):
    """The scheduler's memory across restarts."""

    def load(self) -> Saved:
        """Everything that was saved, the latest of each subject: jobs by sequence, tasks by launch, what has versions
        by version, the rest by name."""

    def events(self) -> Sequence[LogEvent]:
        """The events that are kept, by number."""

    def save(self, batch: Iterable[Save]) -> None:
        """All of it or, after a crash, nothing of it. To forget what is not there is no error; with a job go its tasks.

        Raises:
            NoRoom: It cannot be written now; the same batch may be given again.
        """

    def confirm(self) -> None:
        """See that nobody else writes there by now: an answer that follows from what is saved is then true.

        Raises:
            NoRoom: It cannot be known now.
            Conflict: Somebody else does.
        """

    def close(self) -> None:
        """Let go of it."""


class UseRecords(Protocol):
    """What jobs have used, for reports. From any thread; each call sees one moment of what was saved. Times are in
    milliseconds since the epoch; spans that are open count up to `now_ms`."""

    def use(self, days: Sequence[int], now_ms: int, *, waits: bool = False) -> list[list[Row]]:
        """What was used from each of some days on and before the next, by account; several rows of one are to be added.

        Args:
            days: Of UTC since the epoch, rising; the last one ends the time of the one before it.
            now_ms: Until when open spans count.
            waits: Whether it is also told how long jobs waited that started then and hold nothing any more.

        Raises:
            Unavailable: It cannot be read now.
        """

    def exact_since_ms(self) -> int:
        """Since when there are records one by one; before, there are only sums by days.

        Raises:
            Unavailable: It cannot be read now.
        """

    def records(self, since_ms: int, until_ms: int, now_ms: int) -> Iterator[Closed]:
        """The records that have something of a time, by their ends, then those that are open.

        Raises:
            Unavailable: It cannot be read now.
        """

    def past_jobs(
        self, since_ms: int, until_ms: int, before: tuple[int, str] | None = None
    ) -> Iterator[PastJob]:
        """Jobs that ended in a time, the latest first; of one moment by their ids, backwards.

        Args:
            since_ms: From then on.
            until_ms: Before that.
            before: When the last job that is known had ended, and its id: those that follow it; None: all.

        Raises:
            Unavailable: It cannot be read now.
        """

    def held_by(self, jobs: Collection[JobId]) -> Mapping[JobId, Held]:
        """What jobs have held of GPUs, as far as there are records one by one; who is not among them: nothing.

        Raises:
            Unavailable: It cannot be read now.
        """


class SecretStore(Protocol):
    """Where the values of secrets are. Only the scheduler reads it; no message of an error has any of a value."""

    def see(self) -> None:
        """See, at the start, that it is fit for secrets.

        Raises:
            BadConfiguration: Others may read it, or it is not what it must be. That it cannot be reached is no reason.
        """

    def read(self, source: str) -> bytes:
        """The value of a secret as it is now, of a limited size; from any thread, within some seconds.

        Args:
            source: As `model.secret.SOURCE` has it.

        Raises:
            MesosGpuError: There is none, it cannot be a secret, or the store cannot be reached.
        """

    def close(self) -> None:
        """Let go of it."""


class GpuProbe(Protocol):
    """The GPUs of this host, as they are now."""

    def survey(self) -> Survey:
        """Read all GPUs. A host without GPUs gives an empty survey, not an error.

        Raises:
            MesosGpuError: They cannot be read at all.
        """

    def changed(self) -> bool:
        """Whether it is worth reading again since the last `survey()`; cheap."""

    def reset(self, gpu_id: GpuId) -> str:
        """Reset one card that nothing uses; "" or why not. Not during a `survey()`."""

    def close(self) -> None:
        """Let go of the driver."""


class Driver(Protocol):
    """Calls to the Mesos master. Each raises `Unavailable` when it could not be delivered."""

    def start(self) -> None:
        """Subscribe, and keep subscribed."""

    def stop(self, *, teardown: bool) -> None:
        """Leave; `teardown` ends all tasks, else they run on and a later start finds them."""

    def accept(
        self,
        offer_ids: Sequence[str],
        task_infos: Sequence[Mapping[str, Any]],
        *,
        refuse_s: float,
        reserve: Sequence[Mapping[str, Any]] = (),
        unreserve: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """ACCEPT offers of one agent with one LAUNCH of all tasks; what is left is refused for `refuse_s`.

        Args:
            offer_ids: All of one agent.
            task_infos: As Mesos has them; none: nothing is launched.
            refuse_s: Seconds.
            reserve: Resources, as they are when they are reserved; that comes before the launch.
            unreserve: Resources, as they were offered; that comes before all else.
        """

    def decline(self, offer_ids: Sequence[str], *, refuse_s: float) -> None:
        """DECLINE."""

    def acknowledge(self, agent_id: str, task_id: str, uuid: str) -> None:
        """ACKNOWLEDGE one status update."""

    def kill(self, task_id: str, agent_id: str | None, *, grace_s: float | None) -> None:
        """KILL."""

    def reconcile(self, tasks: Sequence[tuple[str, str | None]]) -> None:
        """RECONCILE (task id, agent id) pairs; none: all that Mesos knows."""

    def tasks(self) -> Sequence[Listed]:
        """All tasks of ours that the master knows, ended ones too; from any thread."""

    def roles(self) -> Sequence[Role]:
        """Tell those of the scheduler's roles that the master knows; from any thread."""

    def message(self, agent_id: str, executor_id: str, data: bytes) -> None:
        """MESSAGE to an executor; Mesos delivers it at most once."""

    def shutdown(self, agent_id: str, executor_id: str) -> None:
        """SHUTDOWN an executor, with all its tasks."""

    def suppress(self, roles: Sequence[str] = ()) -> None:
        """SUPPRESS offers of some roles; none named: of all."""

    def revive(self, roles: Sequence[str] = ()) -> None:
        """REVIVE offers of some roles, none named: of all; clears their filters."""

    def resubscribe(self) -> None:
        """Give up the subscription and all its offers, and subscribe anew: `Registered` comes again."""


class AuditTrail(Protocol):
    """The record of who changed what, and of what was refused. From any thread."""

    def full(self) -> NoRoom | None:
        """Why no change may be made now; None: it can be recorded."""

    def put(self, record: AuditRecord) -> Future[None] | None:
        """Keep a record; None: it is one of a flood of refusals, and was counted. The future ends when it is on disk,
        of a refusal when it is written; it never raises: what could not be kept is counted as lost."""

    def search(self, asked: Asked, *, limit: int, cursor: str) -> Found:
        """The newest records that are asked for, from where the cursor of an earlier answer says; bounded in time.

        Raises:
            BadConfiguration: The cursor is none.
        """

    @property
    def lost(self) -> int:
        """How many records could not be kept since the start."""
