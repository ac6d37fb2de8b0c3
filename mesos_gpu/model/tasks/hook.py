"""Webhooks: URLs to which events are sent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mesos_gpu.model.tasks.event import EventKind, LogEvent


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook. The key that signs its requests is stored separately.

    Attributes:
        name: Name of the webhook.
        url: URL to which events are sent.
        kinds: Kinds of events to send; empty for only those of jobs that name the webhook.
        queues: Patterns of queues whose events are sent; empty for all events, also those without queue.
        since: Number of the latest event at its creation; only later events are sent.
        at: Time of creation or change, seconds since the epoch.
        by: Author of the webhook or its change.
        comment: Comment of the author.
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
    """A version of the set of webhooks.

    Attributes:
        version: Number of the version, from 1; 0 before the first.
        at: Time of the change, seconds since the epoch.
        by: Author of the change.
        what: Description of the change.
        hooks: Webhooks, sorted by name.
    """

    version: int
    at: float
    by: str
    what: str
    hooks: tuple[Hook, ...] = ()

    def hook(self, name: str) -> Hook | None:
        """Return the webhook with a name; None if it does not exist."""
        return next((hook for hook in self.hooks if hook.name == name), None)


@dataclass(frozen=True, slots=True)
class StoredHooks:
    """Webhooks as stored in the state, so that the next leader has them, too.

    Attributes:
        by: Id of the scheduler that wrote it; "" for a single scheduler.
        version: Current version of the webhooks.
        secrets: Signing keys by name of the webhook.
    """

    by: str
    version: HookVersion
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Sent:
    """Progress of sending events to webhooks, as stored in the state.

    Attributes:
        by: Id of the scheduler that sent; "" for a single scheduler.
        seen: Number of the latest processed event.
        waiting: First undelivered event by webhook, of webhooks that have one; key "" for all URLs named by jobs.
    """

    by: str
    seen: int
    waiting: Mapping[str, int] = field(default_factory=dict)

    def first_of(self, target: str) -> int:
        """Return the number of the first event that a target may lack."""
        return self.waiting.get("" if is_url(target) else target, self.seen + 1)

    @property
    def first(self) -> int:
        """Number of the first event that any target may lack."""
        return min(self.waiting.values(), default=self.seen + 1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A request to a webhook that is to be sent, or was given up.

    Attributes:
        id: Number that grows with each delivery.
        target: Name of a webhook, or URL that a job names.
        event: Number of the event.
        kind: Kind of the event.
        body: Body of the request.
        tries: Number of attempts so far.
        next_at: Time of the next attempt, seconds since the epoch.
        error: Reason why the last attempt failed.
        dead_at: Time at which it was given up; None if it was not.
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


#: Kinds of events that are sent to receivers that a job's request names.
TOLD: Final = frozenset(
    {EventKind.FINISHED, EventKind.FAILED, EventKind.KILLED, EventKind.NOTICE, EventKind.RECALL}
)


def targets_of(
    event: LogEvent, hooks: tuple[Hook, ...], fits: Callable[[Sequence[str], str], bool]
) -> list[str]:
    """Return the targets of an event, each once. Webhooks get events of a job array itself, not those of its tasks.

    Args:
        event: Event to be sent.
        hooks: Webhooks to choose from.
        fits: Function that returns whether one of some patterns matches a queue.
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
    """Return whether a target is a URL instead of the name of a webhook."""
    return "://" in target
