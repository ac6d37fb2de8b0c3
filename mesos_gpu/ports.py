"""Protocols of everything outside of the engine. Adapters implement them, and fakes pass the tests of adapters, too."""

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
    """Source of the time of day."""

    def now(self) -> float:
        """Return the time in seconds since the epoch."""


class Store(Protocol):
    """Storage of the scheduler's state across restarts."""

    def load(self) -> Saved:
        """Load the latest value of everything saved: jobs by sequence, tasks by launch, versioned values by version,
        others by name."""

    def events(self) -> Sequence[LogEvent]:
        """Return the stored events, by number."""

    def save(self, batch: Iterable[Save]) -> None:
        """Save a batch atomically: after a crash all of it is saved or nothing.

        Forgetting something that does not exist is no error; forgetting a job also deletes its tasks.

        Raises:
            NoRoom: It cannot be written now; the caller may try the same batch again.
        """

    def confirm(self) -> None:
        """Verify that no other scheduler has taken over the store, so that answers from the saved state are current.

        Raises:
            NoRoom: It cannot be determined now.
            Conflict: Another scheduler writes to the store.
        """

    def close(self) -> None:
        """Close the store."""


class UseRecords(Protocol):
    """Records of GPU use, for reports. Thread-safe; each call sees one consistent state. Times are in milliseconds
    since the epoch; open spans count up to `now_ms`."""

    def use(self, days: Sequence[int], now_ms: int, *, waits: bool = False) -> list[list[Row]]:
        """Return the use of each period between consecutive days, by account; rows of equal accounts are to be summed.

        Args:
            days: Days since the epoch in UTC, rising; the last one only ends the last period.
            now_ms: End of open spans.
            waits: Whether to include the waiting time of jobs that started in the period and hold nothing any more.

        Raises:
            Unavailable: The records cannot be read now.
        """

    def exact_since_ms(self) -> int:
        """Return the time since which there are single records; before it there are only sums by day.

        Raises:
            Unavailable: The records cannot be read now.
        """

    def records(self, since_ms: int, until_ms: int, now_ms: int) -> Iterator[Closed]:
        """Yield the records that overlap a time, by their ends, then those of open spans.

        Raises:
            Unavailable: The records cannot be read now.
        """

    def past_jobs(
        self, since_ms: int, until_ms: int, before: tuple[int, str] | None = None
    ) -> Iterator[PastJob]:
        """Yield jobs that ended in a time, the latest first; jobs with equal ends in reverse order of ids.

        Args:
            since_ms: Begin of the time, included.
            until_ms: End of the time, excluded.
            before: End and id of the last known job, to continue after it; None for all jobs.

        Raises:
            Unavailable: The records cannot be read now.
        """

    def held_by(self, jobs: Collection[JobId]) -> Mapping[JobId, Held]:
        """Return the GPU use of jobs, as far as there are single records; jobs without records are left out.

        Raises:
            Unavailable: The records cannot be read now.
        """


class SecretStore(Protocol):
    """Store of the values of secrets. Only the scheduler reads it; error messages contain no part of a value."""

    def see(self) -> None:
        """Check at the start that the store is safe for secrets.

        Raises:
            BadConfiguration: Other users may read it, or it is misconfigured. An unreachable store is no error here.
        """

    def read(self, source: str) -> bytes:
        """Return the current value of a secret, of limited size, within some seconds. Thread-safe.

        Args:
            source: Path in the form of `model.secret.SOURCE`.

        Raises:
            MesosGpuError: The secret does not exist or is invalid, or the store cannot be reached.
        """

    def close(self) -> None:
        """Close the store."""


class GpuProbe(Protocol):
    """Reader of the GPUs of this host."""

    def survey(self) -> Survey:
        """Read all GPUs. A host without GPUs gives an empty survey, not an error.

        Raises:
            MesosGpuError: The GPUs cannot be read at all.
        """

    def changed(self) -> bool:
        """Return whether something may have changed since the last `survey()`; cheap."""

    def reset(self, gpu_id: GpuId) -> str:
        """Reset a GPU that nothing uses; return "" or why it failed. Must not run during a `survey()`."""

    def close(self) -> None:
        """Unload the driver library."""


class Driver(Protocol):
    """Calls to the Mesos master. Each raises `Unavailable` if it could not be delivered."""

    def start(self) -> None:
        """Subscribe, and stay subscribed."""

    def stop(self, *, teardown: bool) -> None:
        """Disconnect; with `teardown` all tasks are ended, else they keep running and a later start adopts them."""

    def accept(
        self,
        offer_ids: Sequence[str],
        task_infos: Sequence[Mapping[str, Any]],
        *,
        refuse_s: float,
        reserve: Sequence[Mapping[str, Any]] = (),
        unreserve: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """ACCEPT offers of one agent with one LAUNCH of all tasks; the rest is refused for `refuse_s`.

        Args:
            offer_ids: Ids of offers, all of one agent.
            task_infos: TaskInfo messages; empty to launch nothing.
            refuse_s: Seconds for which the rest is not offered again.
            reserve: Resources to reserve before the launch, in their reserved form.
            unreserve: Resources to unreserve before everything else, as they were offered.
        """

    def decline(self, offer_ids: Sequence[str], *, refuse_s: float) -> None:
        """DECLINE offers, which are then not offered again for `refuse_s`."""

    def acknowledge(self, agent_id: str, task_id: str, uuid: str) -> None:
        """ACKNOWLEDGE one status update."""

    def kill(self, task_id: str, agent_id: str | None, *, grace_s: float | None) -> None:
        """KILL one task, with a grace period between SIGTERM and SIGKILL."""

    def reconcile(self, tasks: Sequence[tuple[str, str | None]]) -> None:
        """RECONCILE (task id, agent id) pairs; without pairs all tasks that Mesos knows."""

    def tasks(self) -> Sequence[Listed]:
        """Return all tasks of this framework that the master knows, also ended ones. Thread-safe."""

    def roles(self) -> Sequence[Role]:
        """Return those of the scheduler's roles that the master knows. Thread-safe."""

    def message(self, agent_id: str, executor_id: str, data: bytes) -> None:
        """MESSAGE to an executor; Mesos delivers it at most once."""

    def shutdown(self, agent_id: str, executor_id: str) -> None:
        """SHUTDOWN an executor, with all its tasks."""

    def suppress(self, roles: Sequence[str] = ()) -> None:
        """SUPPRESS offers of some roles; without roles, of all."""

    def revive(self, roles: Sequence[str] = ()) -> None:
        """REVIVE offers of some roles, which clears their filters; without roles, of all."""

    def resubscribe(self) -> None:
        """Give up the subscription with all offers, and subscribe again, which causes another `Registered`."""


class AuditTrail(Protocol):
    """Audit log of changes and refusals. Thread-safe."""

    def full(self) -> NoRoom | None:
        """Return why no change may be made now, as it cannot be recorded; None if it can."""

    def put(self, record: AuditRecord) -> Future[None] | None:
        """Write a record; return None if it is one of many refusals, which are only counted.

        The future completes when the record is on disk, that of a refusal when it is written. It never raises: records
        that cannot be written are counted as lost.
        """

    def search(self, asked: Asked, *, limit: int, cursor: str) -> Found:
        """Return the newest matching records, continuing at the cursor of an earlier answer; bounded in time.

        Raises:
            BadConfiguration: The cursor is invalid.
        """

    @property
    def lost(self) -> int:
        """Number of records that could not be written since the start."""
