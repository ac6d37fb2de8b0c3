"""Rules of bookings: accepted ones are kept, only authorized jobs use them, and other jobs get notice to leave.

They are checked from saved data and from requests of users.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from math import inf
from typing import Final
from zoneinfo import ZoneInfo

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.model.bookings.booking import Booking, BookingState, Repeat
from mesos_gpu.model.ids import GpuId, JobId
from mesos_gpu.model.jobs.job import Job, JobSpec
from mesos_gpu.model.nodes.drain import Target
from mesos_gpu.model.nodes.gpu import Health
from mesos_gpu.model.saves import SaveBooking
from mesos_gpu.model.tasks.notice import NoticeReason
from mesos_gpu.model.tasks.task import Task
from tests.chaos.account import Account
from tests.chaos.rules import fitting, tree
from tests.chaos.violation import Violation
from tests.chaos.virtual import Agent

KEPT: Final = "a booking that was accepted is kept while there are nodes for it"
ONCE: Final = "no card is in two bookings at once"
_TIMES: Final = "a booking is there when it was asked for, and no longer"
LIFE: Final = "a booking ends for a reason, and says so"
FOR: Final = "only authorized jobs use a booking"
BEFORE: Final = "nothing starts in the way of a booking"
_NOTICE: Final = "no job leaves for a booking without notice"
_GONE: Final = "a job that requests a booking ends with it"
_LATE: Final = "nodes of a booking are chosen late"
_LATE_S: Final = 2.0  # seconds by which a match may be late
_DUE_S: Final = 3.0  # seconds within which ticks and matches must act
_CLOCKS_S: Final = 0.001
_WEEKEND: Final = 5  # its first day, from 0 for Monday
_NEXT: Final = {
    None: {BookingState.BOOKED},
    BookingState.BOOKED: {BookingState.BOOKED, BookingState.PREPARING, BookingState.ACTIVE},
    BookingState.PREPARING: {BookingState.BOOKED, BookingState.PREPARING, BookingState.ACTIVE},
    BookingState.ACTIVE: {BookingState.BOOKED, BookingState.ACTIVE, BookingState.OVER, BookingState.RETURNED},
}


# --- jobs that may use a booking


def _called(account: Account, name: str) -> Booking | None:
    """Return the booking with an id or name that a job requests, or None if it was forgotten."""
    every = account.disk.bookings
    return every.get(name) or next(
        (each for each in every.values() if each.spec.name == name and not each.state.ended), None
    )


def over(account: Account, job: Job) -> bool:
    """Return whether a job requests a booking that has ended, so that the job must end."""
    if job.spec.booking is None:
        return False
    booking = _called(account, job.spec.booking)
    return booking is None or booking.state.ended


def _may_use(booking: Booking, job: Job) -> bool:
    spec, user = job.spec, job.owner or job.spec.user or ""
    if spec.booking is not None and spec.booking not in (booking.id, booking.spec.name):
        return False
    if not spec.gpus or spec.is_share or booking.spec.queue not in tree.lineage(spec.queue):
        return False
    return not booking.spec.users or user in booking.spec.users


def _job(account: Account, task: Task) -> Job | None:
    return account.disk.jobs.get(task.job_id) if task.job_id is not None else None


def _with_nodes(account: Account) -> Iterator[Booking]:
    return (each for each in account.disk.bookings.values() if each.state.has_nodes)


def used(account: Account, job: Job) -> Booking | None:
    """Return the active booking whose cards a job rightly uses, or None."""
    tasks = (account.disk.tasks[task_id] for task_id in account.latest(job.id))
    return next((there for task in tasks if (there := is_on(account, task, job))), None)


def is_on(account: Account, task: Task, job: Job) -> Booking | None:
    """Return the active booking whose cards a task of a job rightly uses, or None."""
    active = (each for each in account.disk.bookings.values() if each.is_active and _may_use(each, job))
    return next((each for each in active if set(task.gpus) & set(each.gpus)), None)


def kept_from(account: Account, job: Job) -> set[GpuId]:
    """Return the cards of bookings that a job may not use."""
    return {gpu for each in _with_nodes(account) if not _may_use(each, job) for gpu in each.gpus}


def slots_taken_soon(account: Account, job: Job, now: float) -> int:
    """Return how many tasks of a job may lose their room to bookings without nodes that begin soon.

    Such a booking begins before the job could leave, and it may get the nodes on which the job has room.
    """
    count = 0
    for booking in account.disk.bookings.values():
        if booking.state is not BookingState.BOOKED or _may_use(booking, job):
            continue
        told = job.spec.preemptible and now + 2 * _lead_s(account, job) < booking.begins
        if not told and _over_at(job.spec, now) > booking.begins:
            count += booking.spec.nodes * -(-booking.spec.gpus // job.spec.gpus)
    return count


def owed_s(account: Account, job: Job) -> float:
    """Return the seconds from a notice to SIGTERM that a job is owed."""
    given_s, asked_s = tree.inherited(account.queues, job.spec.queue, "notice_s"), job.spec.notice_s
    if not isinstance(given_s, int | float):
        return min(asked_s or 0.0, account.settings.tasks.most_notice_s)
    return given_s if asked_s is None else min(asked_s, given_s)


def _lead_s(account: Account, job: Job) -> float:
    return owed_s(account, job) + job.spec.kill_grace_s


def _over_at(spec: JobSpec, began_at: float) -> float:
    return inf if spec.timeout_s is None else began_at + spec.timeout_s + spec.kill_grace_s


# --- requests of users


def hear(account: Account, event: ev.Event) -> None:
    """Record an accepted request for a booking."""
    match event:
        case ev.BookingMade(booking_id) | ev.BookingChanged(booking_id):
            account.calendar.asked.add(booking_id)
        case ev.BookingCancelled(booking_id):
            account.calendar.cancelled.add(booking_id)


# --- states of bookings


def follow(account: Account, effects: Iterable[fx.Effect], now: float) -> None:
    """Take over the bookings that a step has saved, and check how each of them has changed.

    Raises:
        Violation: A booking may not change so.
    """
    account.calendar.before = dict(account.disk.bookings)
    for effect in effects:
        if isinstance(effect, SaveBooking):
            _saved(account, effect.booking, now)
            account.disk.save((effect,))


def _saved(account: Account, new: Booking, now: float) -> None:
    old = account.disk.bookings.get(new.id)
    if not new.message:
        raise Violation(LIFE, f"{new} says nothing", new.id)
    if old is not None and old.state.ended:
        raise Violation(LIFE, f"{new.id} was {old.state.value}, and is {new.state.value}", new.id)
    _is_when_asked(new)
    moved = new.id in account.calendar.asked
    if old is not None and new.state.ended:
        _ends(account, old, new.state, now)
    elif old is not None and new.last is not None and old.day != new.day and not moved:
        _ends(account, old, new.last, now)
    elif new.state not in _NEXT[old.state if old else None]:
        raise Violation(LIFE, f"{new.id} was {old.state if old else None}, is {new.state}", new.id)
    if new.is_active and (old is None or not old.is_active):
        account.calendar.began[new.id] = account.calendar.used[new.id] = now
        if not new.begins - _CLOCKS_S <= now < new.ends:
            raise Violation(_TIMES, f"{new.id} begins at {now}: it is {new.begins} to {new.ends}", new.id)
    if new.state is BookingState.PREPARING and (old is None or not old.state.has_nodes):
        _is_late(account, new, now)
    if new.places:
        _is_as_asked(account, new, old)


def _is_when_asked(booking: Booking) -> None:
    """Check the time of a booking in its own time zone."""
    spec, place = booking.spec, ZoneInfo(booking.spec.zone)
    shown = datetime.fromtimestamp(booking.begins, UTC).astimezone(place)
    asked = datetime.fromisoformat(spec.begins).replace(tzinfo=None)
    there = datetime.combine(date.fromisoformat(booking.day), asked.time())
    exists = (
        datetime.fromtimestamp(there.replace(tzinfo=place).timestamp(), place).replace(tzinfo=None) == there
    )
    day = shown.date()
    right = not exists or shown.replace(tzinfo=None) == there
    if spec.repeat is Repeat.NONE:
        right &= day == asked.date() or not exists
    elif spec.repeat is Repeat.WEEKDAYS:
        right &= day.weekday() < _WEEKEND
    elif spec.repeat is Repeat.WEEKLY:
        right &= day.weekday() == asked.weekday()
    if spec.until and booking.state is BookingState.BOOKED:
        right &= booking.day <= spec.until
    if not right or booking.ends - booking.begins != spec.lasts_s:
        words = f"{booking.id} of {spec.begins} {spec.zone} for {spec.lasts_s} s begins {shown}, ends {booking.ends}"
        raise Violation(_TIMES, words, booking.id)


def _ends(account: Account, old: Booking, how: BookingState, now: float) -> None:
    """Check that a booking, or one occurrence of it, has a reason to end."""
    calendar = account.calendar
    began = calendar.began.pop(old.id, now) if old.is_active else now
    idle_s = now - max(calendar.used.get(old.id, began), began)
    if how is BookingState.CANCELLED:
        right = old.id in calendar.cancelled
    elif how is BookingState.FAILED:
        right = now >= old.ends and (not old.is_active or not old.places)
    elif how is BookingState.RETURNED:
        purged = old.spec.purge_after_s and idle_s >= old.spec.purge_after_s - _DUE_S
        right = old.is_active and (now >= old.ends or bool(purged))
    else:
        right = old.is_active and now >= old.ends
    if not right:
        words = f"{old.id} is {how.value} at {now}: it was {old.state.value}, ends {old.ends}, unused for {idle_s} s"
        raise Violation(LIFE, words, old.id)


def _is_late(account: Account, booking: Booking, now: float) -> None:
    """Check that nodes are not chosen earlier than the longest notice of running jobs requires."""
    held = (_job(account, task) for task in account.disk.tasks.values() if task.gpus and not task.ended)
    lead_s = max((_lead_s(account, job) for job in held if job is not None), default=0.0)
    if now < booking.begins - lead_s - _CLOCKS_S:
        words = f"{booking.id} has nodes {booking.begins - now} s before it begins, the longest notice is {lead_s} s"
        raise Violation(_LATE, words, booking.id)


def _is_as_asked(account: Account, new: Booking, old: Booking | None) -> None:
    """Check new nodes of a booking: number and models of cards, pool, and health."""
    before = old.places if old is not None else ()
    spec = new.spec
    if len(new.places) > spec.nodes or len({place.agent_id for place in new.places}) < len(new.places):
        raise Violation(KEPT, f"{new.id} has {new.places}, asked for {spec.nodes} nodes", new.id)
    for place in new.places:
        agent = account.mesos.agents.get(place.agent_id)
        if place in before or agent is None:
            continue
        told = account.agents.get(place.agent_id)
        models = {gpu.model for gpu in agent.gpus if gpu.id in place.gpus}
        sick = [gpu for gpu in place.gpus if told is None or told.health.get(gpu) is not Health.OK]
        sick += [gpu for gpu in place.gpus if (Target.GPU, gpu) in account.drained]
        wrong = len(set(place.gpus)) != spec.gpus or (spec.models and not models <= set(spec.models))
        wrong = wrong or (Target.NODE, place.hostname) in account.drained
        if wrong or sick or tree.pool_of(account.queues, agent) != spec.pool:
            words = f"{new.id} gets {place}, of {models}; not sound are {sick}; it asks for {spec}"
            raise Violation(KEPT, words, new.id)


# --- launches


def launched(account: Account, task: Task, job_id: JobId, now: float) -> None:
    """Check that bookings allow a launched task to use its cards.

    Raises:
        Violation: A booking does not allow it.
    """
    job = account.disk.jobs[job_id]
    for booking in _with_nodes(account):
        if set(task.gpus) & set(booking.gpus) and not _may_use(booking, job):
            _leaves_in_time(account, task, job, booking, now)
    if job.spec.booking is not None:
        mine = _called(account, job.spec.booking)
        if mine is None or not mine.is_active or not set(task.gpus) <= set(mine.gpus):
            words = f"{task.id} asks for {job.spec.booking}, and starts on {task.gpus}: {mine}"
            raise Violation(FOR, words, task.id)


def _leaves_in_time(account: Account, task: Task, job: Job, booking: Booking, now: float) -> None:
    if booking.is_active:
        words = f"{task.id} of {job.spec.queue} starts on {task.gpus} of {booking.id}: {booking.spec}"
        raise Violation(FOR, words, task.id, booking.id)
    left_s = booking.begins - now
    if not (_over_at(job.spec, 0.0) <= left_s or (job.spec.preemptible and _lead_s(account, job) <= left_s)):
        words = f"{task.id} starts on {task.gpus}, {left_s} s before {booking.id} begins: {job.spec}"
        raise Violation(BEFORE, words, task.id, booking.id)


# --- notices


def told(account: Account, task: Task, now: float) -> None:
    """Check a saved notice for a booking.

    Raises:
        Violation: It has no reason, or its end is too early or too late.
    """
    notice, calendar = task.notice, account.calendar
    if notice is None or notice.reason is not NoticeReason.CALENDAR or task.ended or not notice.stands:
        return
    job = _job(account, task)
    if calendar.noticed.get(task.id) == notice.number or job is None:
        return
    calendar.noticed[task.id] = notice.number
    moments = _leaves_at(account, job, now)
    if not moments:
        raise Violation(_NOTICE, f"{task.id} has {notice}, and no booking needs it", task.id)
    if not any(account.words[task_id].running for task_id in account.latest(job.id)):
        return
    latest_end = max(max(moments) - job.spec.kill_grace_s, now + owed_s(account, job))
    if not owed_s(account, job) - _LATE_S <= notice.until - now <= latest_end - now + _CLOCKS_S:
        words = f"{task.id} ends in {notice.until - now} s, is owed {owed_s(account, job)} s; by {latest_end - now}"
        raise Violation(_NOTICE, words, task.id)


def _leaves_at(account: Account, job: Job, now: float) -> list[float]:
    """Return begins and ends of bookings for which a job must get its notice by now."""
    gpus = {gpu for task_id in account.latest(job.id) for gpu in account.disk.tasks[task_id].gpus}
    lead_s, moments = _lead_s(account, job), list[float]()
    for booking in {*account.calendar.before.values(), *account.disk.bookings.values()}:
        asks = job.spec.booking in (booking.id, booking.spec.name)  # its node may have been replaced
        if not asks and not gpus & set(booking.gpus):
            continue
        may, ending = _may_use(booking, job), booking.id in account.calendar.cancelled or booking.state.ended
        if may and (ending or now + lead_s + _LATE_S >= booking.ends):
            moments.append(now if ending else booking.ends)
        soon = booking.is_active or now + lead_s + _LATE_S >= booking.begins
        if not may and booking.state.has_nodes and soon:
            moments.append(booking.begins)
    return moments


def needs_end(account: Account, job: Job, now: float) -> str:
    """Return the reason for which a booking must end a job by now, or an empty text."""
    gpus = {gpu for task_id in account.latest(job.id) for gpu in account.disk.tasks[task_id].gpus}
    lead_s = _lead_s(account, job)
    starts = [account.disk.tasks[task_id].started_at or now for task_id in account.latest(job.id)]
    for booking in _with_nodes(account):
        if not gpus & set(booking.gpus):
            continue
        stays = booking.spec.overrun and job.spec.preemptible and job.spec.booking is None
        if _may_use(booking, job):
            if booking.is_active and not stays and now + lead_s >= booking.ends:
                return f"{booking.id} ends, on which it runs"
        elif now + lead_s >= booking.begins and _over_at(job.spec, max(starts)) > booking.begins:
            return f"{booking.id} begins, in whose way it is"
    return ""


def ends_at_once(account: Account, job: Job, now: float) -> bool:
    """Return whether a job without a right to notice may be ended for a booking at once."""
    return not owed_s(account, job) and bool(_leaves_at(account, job, now))


# --- after each batch


def kept(account: Account, launched_now: Iterable[JobId], now: float) -> None:
    """Check all bookings after a batch.

    Raises:
        Violation: A rule is broken.
    """
    bookings = list(account.disk.bookings.values())
    if not bookings:
        account.calendar.since.clear()
        return
    _once(account)
    fitting.accepted(account, bookings)
    wrong = dict[tuple[str, str], str]()
    for booking in bookings:
        if not booking.state.ended:
            _due(account, booking, now, wrong)
            _unobstructed(account, booking, set(launched_now), now)
    for task in account.disk.tasks.values():
        if task.gpus and not task.ended:
            _should_be_told(account, task, now, wrong)
    _lasting(account, wrong, now)


def _lasting(account: Account, wrong: dict[tuple[str, str], str], now: float) -> None:
    """Raise for a fault that lasts longer than the scheduler needs to notice and correct it."""
    before = account.calendar.since
    account.calendar.since = {key: min(before.get(key, now), now) for key in wrong}
    for key, since in account.calendar.since.items():
        if now - since > _DUE_S:
            raise Violation(key[0], f"for {now - since} s {wrong[key]}", *key[1].split())


def _once(account: Account) -> None:
    there = list(_with_nodes(account))
    for n, one in enumerate(there):
        for other in there[:n]:
            both = set(one.gpus) & set(other.gpus)
            if both and one.begins < other.ends and other.begins < one.ends:
                times = " and ".join(f"{each.id}, {each.begins} to {each.ends}" for each in (one, other))
                words = f"{sorted(both)} are of {times}"
                raise Violation(ONCE, words, one.id, other.id)


def _due(account: Account, booking: Booking, now: float, wrong: dict[tuple[str, str], str]) -> None:
    if booking.is_active and now >= booking.ends:
        wrong[_TIMES, booking.id] = f"{booking.id} goes on after its end"
    if not booking.is_active and now >= booking.begins:
        wrong[_TIMES, booking.id] = f"{booking.id} has not begun"
    if not booking.state.has_nodes:
        return
    if booking.is_active and any(task.launched_at < now for task in users_of(account, booking)):
        account.calendar.used[booking.id] = now  # without jobs that lost the right when they were launched
    since = account.registered_at  # each node has time to report after a registration
    sound = [each for each in booking.places if _is_sound(account, each.agent_id, each.gpus, now, since)]
    connected = account.mesos.connected
    if booking.is_active and connected and len(booking.places) < booking.spec.nodes and not booking.told:
        wrong[LIFE, booking.id] = f"{booking.id} lacks nodes, without an event for users"
    lacks = booking.spec.nodes - len(sound)
    if lacks <= 0 or not connected:
        return
    able = [
        agent.hostname
        for agent in account.mesos.agents.values()
        if agent.id not in {place.agent_id for place in sound} and _could_serve(account, booking, agent, now)
    ]
    if able:
        wrong[KEPT, booking.id] = f"{booking.id} lacks {lacks} nodes, and {able} could serve"


def users_of(account: Account, booking: Booking) -> list[Task]:
    """Return the tasks that rightly hold cards of a booking."""
    gpus = set(booking.gpus)
    tasks = (task for task in account.disk.tasks.values() if gpus & set(task.gpus) and not task.ended)
    return [task for task in tasks if (job := _job(account, task)) is not None and _may_use(booking, job)]


def _is_sound(
    account: Account, agent_id: object, gpus: Iterable[GpuId], now: float, since: float = 0.0
) -> bool:
    """Return whether cards of a node are known to be healthy; reports before `since` count from then on."""
    node = next((node for node in account.disk.nodes.values() if node.id == agent_id), None)
    known = account.agents.get(node.id) if node is not None else None
    if node is None or known is None or node.lost_at is not None or not node.wire:
        return False
    if (
        now - max(known.at, since) > account.settings.programs.report_stale_s
        or (Target.NODE, node.hostname) in account.drained
    ):
        return False
    return all(_is_well(account, known.health, gpu) for gpu in gpus)


def _is_well(account: Account, health: dict[GpuId, Health], gpu: GpuId) -> bool:
    card = account.disk.cards.get(gpu)
    in_reset = card is not None and card.reset is not None
    return health.get(gpu) is Health.OK and (Target.GPU, gpu) not in account.drained and not in_reset


def _could_serve(account: Account, booking: Booking, agent: Agent, now: float) -> bool:
    """Return whether a booking could certainly use a node.

    Enough of its cards must be healthy, outside of other bookings, and without tasks that cannot be preempted.
    """
    if tree.pool_of(account.queues, agent) != booking.spec.pool or not _is_sound(account, agent.id, (), now):
        return False
    taken = {
        gpu
        for other in _with_nodes(account)
        if other.id != booking.id and other.begins < booking.ends and booking.begins < other.ends
        for gpu in other.gpus
    }
    for task in account.disk.tasks.values():
        job = _job(account, task)
        if task.ended or task.hostname != agent.hostname:
            continue
        if task.covers is not None:
            taken.add(task.covers)
        if task.share is not None or job is None or _stays(job, booking):
            taken.update(task.gpus)
    health = account.agents[agent.id].health
    able = [gpu for gpu in agent.gpus if gpu.id not in taken and _is_well(account, health, gpu.id)]
    if booking.spec.models and not {gpu.model for gpu in able} <= set(booking.spec.models):
        return False
    held = {gpu for task in account.disk.tasks.values() if not task.ended for gpu in task.gpus}
    free = sum(gpu.id not in held for gpu in able)
    return len(able) - free + min(free, _offered(account, agent)) >= booking.spec.gpus


def _offered(account: Account, agent: Agent) -> int:
    """Return the number of GPUs of an agent in offers; another framework may have the others."""
    offers = [offer_id for offer_id, agent_id in account.held.items() if agent_id == agent.id]
    known = [each for each in offers if each in account.mesos.offers]
    return int(sum(account.mesos.offers[i][1]["gpus"] + account.mesos.offered_kept[i]["gpus"] for i in known))


def _stays(job: Job, booking: Booking) -> bool:
    return not job.spec.preemptible and not _may_use(booking, job)


def _unobstructed(account: Account, booking: Booking, launched_now: set[JobId], now: float) -> None:
    """Check that launches leave enough nodes for a booking without nodes; only if no other booking overlaps with it."""
    if booking.state is not BookingState.BOOKED or not launched_now:
        return
    others = (each for each in account.disk.bookings.values() if not each.state.ended and each is not booking)
    if any(other.begins < booking.ends and booking.begins < other.ends for other in others):
        return
    before, after = (_nodes_for(account, booking, but, now) for but in (launched_now, set[JobId]()))
    if min(before, booking.spec.nodes) > after:
        words = f"{booking.id} had {before} nodes for {booking.spec.nodes}, and {after} after {launched_now} began"
        raise Violation(BEFORE, words, booking.id, *launched_now)


def _nodes_for(account: Account, booking: Booking, but: set[JobId], now: float) -> int:
    """Return how many nodes have enough healthy cards that are free when a booking begins, without jobs `but`."""
    count = 0
    for agent in account.mesos.agents.values():
        if tree.pool_of(account.queues, agent) != booking.spec.pool:
            continue
        if not _is_sound(account, agent.id, (), now) or agent.id not in account.agents:
            continue
        held = {
            gpu
            for task in account.disk.tasks.values()
            if task.hostname == agent.hostname and not task.ended and task.job_id not in but
            for gpu in task.gpus  # a shared card is free when its last share has ended
            if _is_there_then(account, task, booking, now)
        }
        health = account.agents[agent.id].health
        free = [gpu for gpu in agent.gpus if gpu.id not in held and _is_well(account, health, gpu.id)]
        able = {gpu.model for gpu in free} <= set(booking.spec.models or [gpu.model for gpu in free])
        count += able and len(free) >= booking.spec.gpus
    return count


def _is_there_then(account: Account, task: Task, booking: Booking, now: float) -> bool:
    job = _job(account, task)
    if job is None:
        return True
    began_at = task.started_at or task.launched_at
    if _may_use(booking, job) or _over_at(job.spec, began_at) <= booking.begins:
        return False
    return not (job.spec.preemptible and now + _lead_s(account, job) <= booking.begins)


def _should_be_told(account: Account, task: Task, now: float, wrong: dict[tuple[str, str], str]) -> None:
    """Record a task that must leave the cards of a booking, or whose own booking has ended, without a notice."""
    job = _job(account, task)
    if job is None or job.kill_requested or task.evicted or account.words[task.id].ended:
        return
    if _launch_is_over(account, task, job, now) or (task.notice is not None and task.notice.stands):
        return
    if job.spec.booking is not None:
        mine = _called(account, job.spec.booking)
        if mine is None or not mine.is_active:
            wrong[_GONE, f"{task.id} {job.id}"] = f"{task.id} runs, and its booking does not: {mine}"
    for booking in account.disk.bookings.values():
        begun = booking.is_active and now >= booking.begins  # false while a clock was set back
        there = begun and bool(set(task.gpus) & set(booking.gpus))
        if there and job.spec.preemptible and not _may_use(booking, job):
            key = FOR, f"{task.id} {booking.id}"
            wrong[key] = f"{task.id} is on cards of {booking.id}, and was not told to leave"


def _launch_is_over(account: Account, task: Task, job: Job, now: float) -> bool:
    """Return whether a launch is given up or unreachable."""
    word = account.words[task.id]
    latest = account.latest(job.id)
    return task.id not in latest or word.cut_since is not None or account.given_up(task.id, now)
