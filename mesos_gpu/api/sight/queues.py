"""Visibility of queues and budgets: a caller sees the queues that its rights name, and the queues above them."""

from dataclasses import replace

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import JOB_SEE, QUEUE_SEE
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.tenancy import EVERYBODY, QueueDocument
from mesos_gpu.model.usage import BudgetUse
from mesos_gpu.policy.tenancy.tree import lineage


def sees_queue(rights: Rights, path: str) -> bool:
    """Return whether the caller has the right to see a queue."""
    return rights.may(QUEUE_SEE, Subject(queue=path))


def sees_budget(rights: Rights, use: BudgetUse) -> bool:
    """Return whether the caller sees a budget: its queue or jobs in it are visible, or it is the caller's own."""
    if use.user == EVERYBODY:
        return sees_queue(rights, use.queue) or rights.may(JOB_SEE, Subject(queue=use.queue))
    return use.user == rights.caller.name or rights.may(JOB_SEE, Subject(use.user, use.queue))


def told_of(rights: Rights, refused: NotAccepted, queue: str) -> NotAccepted:
    """Return a refusal of a job or an app without the names of invisible queues.

    `queue`: the requested queue, in words.
    """
    if rights.may(QUEUE_SEE):
        return refused
    why = f"{queue} is not a queue that accepts jobs; list those that you may see: mesos-gpu queue list"
    faults = [(place, why if place.endswith("/queue") else reason) for place, reason in refused.faults]
    return NotAccepted(faults, remedy=refused.remedy)


def seen_queues(rights: Rights, document: QueueDocument) -> QueueDocument:
    """Return a document of queues without the invisible ones."""
    if rights.may(QUEUE_SEE):
        return document
    visible = {ancestor for path in document.queues if sees_queue(rights, path) for ancestor in lineage(path)}
    return replace(document, queues={path: spec for path, spec in document.queues.items() if path in visible})
