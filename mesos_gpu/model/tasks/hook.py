"""Webhooks: addresses that are told what happens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.model.tasks.event import EventKind, LogEvent


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook. What its requests are signed with is kept apart.

    Attributes:
        name: Its own.
        url: Where events are sent.
        kinds: Of events; none: only those of jobs that name the hook.
        queues: Patterns of the queues whose events it gets; none: all, and what is of no queue.
        since: The number of the latest event when it was made: only later ones are sent.
        at: When it was made or changed, seconds since the epoch.
        by: By whom.
        comment: What it is for.
    """

    name: str
    url: str
    kinds: tuple[EventKind, ...] = ()
    queues: tuple[str, ...] = ()
    since: int = 0
    at: float = 0.0
    by: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class HookVersion:
    """All webhooks as they were from a change on.

    Attributes:
        version: From 1; 0: there has been none yet.
        at: Seconds since the epoch.
        by: Who changed it.
        what: What was changed, in words.
        hooks: By name.
    """

    version: int
    at: float
    by: str
    what: str
    hooks: tuple[Hook, ...] = ()

    def hook(self, name: str) -> Hook | None:
        """The one of that name."""
        return next((hook for hook in self.hooks if hook.name == name), None)


@dataclass(frozen=True, slots=True)
class KeptHooks:
    """The webhooks as the state has them, so that whoever leads next has them, too.

    Attributes:
        by: The scheduler that wrote it; "": one that is alone.
        version: The version that holds.
        secrets: What the requests of each are signed with, by name.
    """

    by: str
    version: HookVersion
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Sent:
    """How far events were sent to webhooks, as the state has it.

    Attributes:
        by: The scheduler that sent; "": one that is alone.
        seen: The number of the latest event that was looked at.
        waiting: By webhook, the first event that it has not taken yet, of those that have one; "": of all URLs that
            jobs have named.
    """

    by: str
    seen: int
    waiting: Mapping[str, int] = field(default_factory=dict)

    def first_of(self, target: str) -> int:
        """The first event that a target may lack."""
        return self.waiting.get("" if is_url(target) else target, self.seen + 1)

    @property
    def first(self) -> int:
        """The first event that any target may lack."""
        return min(self.waiting.values(), default=self.seen + 1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Something that is to be sent, or could not be.

    Attributes:
        id: Grows from one to the next.
        target: The name of a hook, or a URL that a job has named.
        event: The number of the event.
        kind: Of that.
        body: That is sent.
        tries: So far.
        next_at: When it is tried again, seconds since the epoch.
        error: Why the last try failed.
        dead_at: When it was given up; None: it was not.
    """

    id: int
    target: str
    event: int
    kind: str
    body: bytes
    tries: int = 0
    next_at: float = 0.0
    error: str = ""
    dead_at: float | None = None


#: What a job that asks for it is told of.
TOLD: Final = frozenset(
    {EventKind.FINISHED, EventKind.FAILED, EventKind.KILLED, EventKind.NOTICE, EventKind.RECALL}
)


def targets_of(
    event: LogEvent, hooks: tuple[Hook, ...], fits: Callable[[Sequence[str], str], bool]
) -> list[str]:
    """Where an event is to be sent, each once. Of a job array it is the array's own that are, not those of its tasks.

    Args:
        event: What has happened.
        hooks: All that there are.
        fits: Whether a queue fits one of some patterns.
    """
    named = event.notify if event.kind in TOLD else ()
    targets = [
        hook.name
        for hook in hooks
        if event.number > hook.since
        and (
            hook.name in named
            or (
                event.kind in hook.kinds
                and not event.array
                and (not hook.queues or fits(hook.queues, event.queue))
            )
        )
    ]
    return [*targets, *(target for target in dict.fromkeys(named) if is_url(target))]


def is_url(target: str) -> bool:
    """Whether a target is an address and no name of a hook."""
    return "://" in target
