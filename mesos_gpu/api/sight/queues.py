"""Which queues somebody sees: those that he has the right to see, and the queues above them; and which budgets."""

from dataclasses import replace

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import JOB_SEE, QUEUE_SEE
from mesos_gpu.errors import NotAccepted
from mesos_gpu.model.tenancy import EVERYBODY, QueueDocument
from mesos_gpu.model.usage import BudgetUse
from mesos_gpu.policy.tenancy.tree import lineage


def sees_queue(rights: Rights, path: str) -> bool:
    """Whether it is one that he has the right to see."""
    return rights.may(QUEUE_SEE, Subject(queue=path))


def sees_budget(rights: Rights, use: BudgetUse) -> bool:
    """Whether he sees the queue that it is of, or jobs in it, or it is his own."""
    if use.user == EVERYBODY:
        return sees_queue(rights, use.queue) or rights.may(JOB_SEE, Subject(queue=use.queue))
    return use.user == rights.caller.name or rights.may(JOB_SEE, Subject(use.user, use.queue))


def told_of(rights: Rights, refused: NotAccepted, queue: str) -> NotAccepted:
    """A refusal of a job, or of an app, as who asks may read it: it names no queues that he does not see. `queue`: that
    was asked for, in words."""
    if rights.may(QUEUE_SEE):
        return refused
    why = f"{queue} is no queue that takes jobs; those that you see: mesos-gpu queue list"
    faults = [(place, why if place.endswith("/queue") else reason) for place, reason in refused.faults]
    return NotAccepted(faults, remedy=refused.remedy)


def seen_queues(rights: Rights, document: QueueDocument) -> QueueDocument:
    """A document as somebody sees it: a queue that he does not see is not in it."""
    if rights.may(QUEUE_SEE):
        return document
    seen = {each for path in document.queues if sees_queue(rights, path) for each in lineage(path)}
    return replace(document, queues={path: spec for path, spec in document.queues.items() if path in seen})
