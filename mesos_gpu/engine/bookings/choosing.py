"""Which nodes a booking has: chosen when something must be told to leave them, and anew if one falls ill.

Before that it has provisional ones, so that nothing is started there that could not be out of its way in time. What is
chosen displaces the least work, and leaves room for all other bookings.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Final

from mesos_gpu.engine.bookings.beginning import begin, is_to_begin, lacking_words, lasts_words, offered_at
from mesos_gpu.engine.bookings.ground import booked_items, ground_of
from mesos_gpu.engine.bookings.telling import SLACK_S, call_off, is_told, on_places, tell_at, tell_end_at
from mesos_gpu.engine.bookings.using import count_used, counted_up, purged_at
from mesos_gpu.engine.calendar.booked import jobs_of, may_use, others_on, owner_of, unfinished
from mesos_gpu.engine.calendar.leads import has_ended_by
from mesos_gpu.engine.charges import pool_of_node
from mesos_gpu.engine.gpus.capacities import idle_gpus
from mesos_gpu.engine.gpus.gpu_status import is_closed, sound_of
from mesos_gpu.engine.gpus.role import is_asked, reserved_for_others
from mesos_gpu.engine.indexes.provisional import Provisional
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import LONGEST_S, Booking, BookingState, Place
from mesos_gpu.model.ids import AgentId, GpuId, JobId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.model.resources import Resources
from mesos_gpu.policy.calendar.book import Chosen, Ground, Item, laid_out
from mesos_gpu.policy.calendar.local_times import shown
from mesos_gpu.policy.capacity.node import NodeCapacity
from mesos_gpu.policy.capacity.request import GpuRequest, Request
from mesos_gpu.policy.room.knapsack import Victim, Worth, worth
from mesos_gpu.policy.room.lost import lost_milli_s, ran
from mesos_gpu.policy.room.preemption import plan

_IN_TIME: Final = 0  # priorities of those that would be displaced: who leaves in time,
_LATE: Final = 1  # who leaves, but only after the begin,
_STAYS: Final = 2  # and who is there until it ends by itself, when nobody knows


def choose_nodes(turn: Turn, backlog: Backlog) -> None:
    """Choose what must be chosen now, let begin what is to, and put provisional nodes in order; in each match while
    there are bookings."""
    last = turn.state.calendar.provisional
    now = Provisional({} if last is None else dict(last.places))
    for booking in unfinished(turn.state):
        count_used(turn, booking)
    choice = _Choice(turn, backlog, now)
    for booking in unfinished(turn.state):
        if booking.state.has_nodes:
            now.places.pop(booking.id, None)
            choice.mend(booking)
        else:
            choice.provide(booking)
        if is_to_begin(turn, turn.state.calendar.bookings[booking.id]):
            begin(turn, turn.state.calendar.bookings[booking.id])
    known = {each.id for each in unfinished(turn.state)}
    now.places = {key: places for key, places in now.places.items() if key in known}
    now.next_at = min((_next_of(turn, each, now) for each in unfinished(turn.state)), default=inf)
    turn.state.calendar.provisional = now
    if now.is_soon(turn.now):
        for node in turn.state.cluster.nodes.values():
            backlog.nodes.capacity(
                node
            )  # what is offered is remembered, if it is not offered when nodes are chosen


def _next_of(turn: Turn, booking: Booking, now: Provisional) -> float:
    """When a booking needs something next; what is due already is done at once."""
    places = booking.places if booking.state.has_nodes else now.places.get(booking.id, ())
    there = [job for job in on_places(turn, booking, places).values() if job.spec.preemptible]
    leave = [(tell_at(turn, booking, job), job) for job in there]
    if booking.is_active:
        moments = [float(booking.ends)]
        if (purge_at := purged_at(turn, booking)) is not None:
            moments.append(purge_at)
        users = jobs_of(turn.state, booking)
        leave += [(tell_end_at(turn, booking, job), job) for job in users]
    else:
        moments = [float(booking.begins)]
    lacks = booking.state.has_nodes and len(places) < booking.spec.nodes and not booking.told
    if lacks and (offered := offered_at(turn)) is not None:
        moments.append(offered)
    moments += [at for at, job in leave if not is_told(turn, job)]
    return max(min(moments), turn.now)


@dataclass
class _Choice:
    """The choices of one match."""

    turn: Turn
    backlog: Backlog
    now: Provisional

    @cached_property
    def _ground(self) -> Ground:
        return ground_of(self.turn.state)

    @cached_property
    def _nodes(self) -> list[Node]:
        """The smaller first: the larger are left for whom only they serve."""
        nodes = self.turn.state.cluster.nodes.values()
        return sorted(nodes, key=lambda node: (len(node.gpus), node.hostname, node.id))

    def provide(self, booking: Booking) -> None:
        """Let a booking have provisional nodes, and choose them for good if the first on them must be told now."""
        places = self.now.places.get(booking.id, ())
        lacks = len(places) < booking.spec.nodes or self._is_obstructed(booking, places)
        if lacks or not self._are_there(booking, places) or self._is_taken(booking, places):
            places = self._choose(booking, firm=False)
            self.now.places[booking.id] = places
        there = on_places(self.turn, booking, places).values()
        told = [tell_at(self.turn, booking, job) for job in there if job.spec.preemptible]
        if self.turn.now >= min([booking.begins, *told]):
            self._begin_with(booking, self._choose(booking, firm=True))

    def _begin_with(self, booking: Booking, chosen: tuple[Place, ...]) -> None:
        """Let a booking have its nodes, or those of them that there are; the others are looked for until its end."""
        if chosen:
            self.now.places.pop(booking.id, None)
            booking = replace(booking, state=BookingState.PREPARING)
        elif booking.told or self._is_new():
            return
        begins = f"it begins {shown(booking.begins, booking.spec.zone)}"
        self._put_places(
            booking, chosen, f"its nodes are chosen: {_names(chosen)}; {begins}" if chosen else ""
        )

    def mend(self, booking: Booking) -> None:
        """Replace nodes of a booking that are not there any more, or never were."""
        sound = tuple([place for place in booking.places if self._is_sound(place)])
        if sound == booking.places and len(sound) >= booking.spec.nodes:
            return
        more = self._choose(booking, firm=True, beside=sound)
        if more or sound != booking.places or not (booking.told or self._is_new()):
            self._put_places(booking, (*sound, *more), _changed_words(booking, sound, more))

    def _put_places(self, booking: Booking, places: tuple[Place, ...], message: str) -> None:
        """Let a booking have other places, and tell its owner what is lacking then; who was told to leave those that it
        had goes on."""
        lacks = "" if self._is_new() else lacking_words(replace(booking, places=places))
        short = f"{lacks}: no other is sound, or can be free in time" if lacks else ""
        message = "; ".join(filter(None, (message, short))) or booking.message
        counted = counted_up(booking, self.turn.now)
        self.turn.put(replace(counted, places=places, told=bool(lacks), message=message))
        left = others_on(self.turn.state, booking, booking.gpus)
        call_off(self.turn, left, f"booking {booking.spec.name} has other nodes")

    def _is_new(self) -> bool:
        """Whether Mesos may have offers that did not come yet: then nobody knows what is lacking."""
        return offered_at(self.turn) is not None

    def _is_sound(self, place: Place) -> bool:
        state = self.turn.state
        node = state.cluster.nodes.get(place.agent_id)
        if node is None or node.lost_at is not None or is_closed(state, node):
            return False
        heard_at = max(node.reported_at or 0.0, state.mesos.registered_at)
        if self.turn.now - heard_at > self.turn.settings.programs.report_stale_s:
            return False  # unknown is not healthy
        return {*place.gpus} <= {gpu.id for gpu in sound_of(state, node, node.gpus)}

    def _are_there(self, booking: Booking, places: Collection[Place]) -> bool:
        """Whether places are sound, and in the pool of a booking: a node may be in another one by now."""
        state = self.turn.state
        pools = {pool_of_node(state.quota.tree, state.cluster.nodes.get(place.agent_id)) for place in places}
        return pools <= {booking.spec.pool} and all(map(self._is_sound, places))

    def _is_obstructed(self, booking: Booking, places: Collection[Place]) -> bool:
        """Whether somebody is on places who cannot be told to leave them by the begin: others may be free by now."""
        there = on_places(self.turn, booking, places).values()
        latest = self.turn.now - SLACK_S
        return any(not job.spec.preemptible or tell_at(self.turn, booking, job) < latest for job in there)

    def _is_taken(self, booking: Booking, places: Collection[Place]) -> bool:
        taken = self._taken(booking)
        return any(gpu in taken for place in places for gpu in place.gpus)

    def _taken(self, booking: Booking) -> set[GpuId]:
        """GPUs of other bookings that are there while this one is; of two that are provisional those of the first."""
        taken = set[GpuId]()
        for other in unfinished(self.turn.state):
            if other.id == booking.id or not other.overlaps(booking):
                continue
            if other.state.has_nodes:
                taken.update(other.gpus)
            elif (other.begins, other.id) < (booking.begins, booking.id):
                taken.update(gpu for place in self.now.places.get(other.id, ()) for gpu in place.gpus)
        return taken

    def _choose(self, booking: Booking, *, firm: bool, beside: tuple[Place, ...] = ()) -> tuple[Place, ...]:
        """The places that displace the least work, beside those that it has, and leave room for the other bookings: as
        many as there are. `firm`: of those alone that can be free, now or soon."""
        cheapest = self._cheapest(booking, None, firm=firm, beside=beside)
        if not cheapest or self._leaves_room(booking, (*beside, *cheapest)):
            return cheapest
        planned = self._planned(booking)
        other = () if planned is None else self._cheapest(booking, planned, firm=firm, beside=beside)
        return cheapest if len(other) < len(cheapest) else other

    def _items(self, booking: Booking, chosen: tuple[Chosen, ...]) -> list[Item]:
        mine = Item(
            booking.id,
            booking.spec,
            booking.begins,
            booking.ends,
            chosen,
            owner_of(self.turn.state, booking.spec),
        )
        return [mine, *booked_items(self.turn.state, self.turn.now, booking.id, booking.ends + LONGEST_S)]

    def _leaves_room(self, booking: Booking, places: tuple[Place, ...]) -> bool:
        chosen = tuple(Chosen(place.agent_id, self._model(place), len(place.gpus)) for place in places)
        return laid_out(self._ground, self._items(booking, chosen), booking.id) is not None

    def _planned(self, booking: Booking) -> set[AgentId] | None:
        places = laid_out(self._ground, self._items(booking, ()), booking.id)
        if places is None:
            return None
        return {AgentId(each.node) for each in places[booking.id, booking.begins]}

    def _model(self, place: Place) -> str:
        known = self.turn.state.cluster.place_of(place.gpus[0])
        return "" if known is None else known[1].model

    def _cheapest(
        self, booking: Booking, only: Collection[AgentId] | None, *, firm: bool, beside: tuple[Place, ...]
    ) -> tuple[Place, ...]:
        taken, ended = self._taken(booking), set[JobId]()
        used = {place.agent_id for place in beside}
        chosen: list[Place] = []
        while len(chosen) + len(beside) < booking.spec.nodes:
            best: tuple[Worth, Place, tuple[Victim, ...]] | None = None
            for node in self._nodes:
                if node.id in used or (only is not None and node.id not in only):
                    continue
                if not self._serves(booking, node):
                    continue
                there = self._on(booking, node, taken, ended, firm=firm)
                if there is None:
                    continue
                place, victims = there
                rank = worth(victims)
                if best is None or rank < best[0]:
                    best = rank, place, victims
                if not victims:
                    break  # no node is cheaper
            if best is None:
                break
            chosen.append(best[1])
            used.add(best[1].agent_id)
            ended |= {victim.job_id for victim in best[2]}
        return tuple(chosen)

    def _serves(self, booking: Booking, node: Node) -> bool:
        state = self.turn.state
        if node.lost_at is not None or is_closed(state, node) or len(node.gpus) < booking.spec.gpus:
            return False
        return pool_of_node(state.quota.tree, node) == booking.spec.pool

    def _on(
        self, booking: Booking, node: Node, taken: Collection[GpuId], ended: Collection[JobId], *, firm: bool
    ) -> tuple[Place, tuple[Victim, ...]] | None:
        """The GPUs of one node that cost the least, and who is displaced there; None: it has not enough."""
        capacity = self._capacity(booking, node)
        victims: dict[JobId, Victim] = {}
        free = []
        for held in capacity.allocations:
            job = None if held.job_id is None else self.turn.state.work.jobs.get(held.job_id)
            is_gone = has_ended_by(self.turn.state, self.turn.now, held, booking.begins)
            if job is None or is_gone or job.id in ended or may_use(booking, job):
                free.append(held)
            elif (victim := self._victim(booking, job)).priority < _STAYS or not firm:
                victims[job.id] = victim
        left = _less(capacity.without(free), taken)
        request = Request(
            Resources(gpus=booking.spec.gpus), GpuRequest(booking.spec.gpus, models=booking.spec.models)
        )
        theirs = reserved_for_others(self.turn.state, self._role(booking), node.id)
        left = replace(left, free=left.free.with_gpus(max(len(left.gpus) - theirs, 0)))
        chosen = plan(request, 1, [left], victims)
        if chosen is None:
            return None
        gone = {victim.job_id for victim in chosen}
        ready = left.without([held for held in left.allocations if held.job_id in gone])
        groups = [group for group in ready.usable(request.gpu) if len(group) >= booking.spec.gpus]
        if not groups:
            return None
        idle = {gpu.id for gpu in capacity.gpus}
        gpus = sorted(groups[0], key=lambda gpu: (gpu.id not in idle, gpu.minor, gpu.id))[: booking.spec.gpus]
        return Place(node.id, node.hostname, tuple(gpu.id for gpu in gpus)), chosen

    def _capacity(self, booking: Booking, node: Node) -> NodeCapacity:
        """What a node has. GPUs that nobody holds are free there, too, while the master is asked for no offers."""
        turn, capacity = self.turn, self.backlog.nodes.capacity(node)
        if is_asked(turn.state, self._role(booking)):
            return capacity
        known = {gpu.id for gpu in capacity.gpus}
        idle = idle_gpus(turn.state, turn.settings, turn.now, node)
        return replace(capacity, gpus=(*capacity.gpus, *(gpu for gpu in idle if gpu.id not in known)))

    def _role(self, booking: Booking) -> str:
        return self.turn.settings.mesos.role_for(booking.spec.queue)

    def _victim(self, booking: Booking, job: Job) -> Victim:
        """What it costs that a job ends for a booking: work that is done again, in GPU seconds."""
        turn = self.turn
        milli = job.spec.gpu_milli_in_all
        lost = lost_milli_s(ran(job.started_at, job.checkpoint_at, turn.now, milli, 0), 0, 0)
        if not job.spec.preemptible:
            return Victim(job.id, _STAYS, lost)
        late = tell_at(turn, booking, job) < turn.now - SLACK_S
        return Victim(job.id, _LATE if late else _IN_TIME, lost)


def _changed_words(booking: Booking, kept: tuple[Place, ...], more: tuple[Place, ...]) -> str:
    """What becomes of places of a booking that has begun, or is to; "": nothing takes the place of what is lacking."""
    if not more:
        return ""
    if not booking.places and not booking.told:  # none were looked for before
        return f"its nodes are chosen: {_names(more)}; {lasts_words(booking)}"
    gone = _names([place for place in booking.places if place not in kept]) or "what was lacking"
    return f"{gone} is replaced by {_names(more)}"


def _names(places: Iterable[Place]) -> str:
    return ", ".join(place.hostname for place in places)


def _less(node: NodeCapacity, taken: Collection[GpuId]) -> NodeCapacity:
    """The node without GPUs of other bookings, free or held."""
    gpus = tuple([gpu for gpu in node.gpus if gpu.id not in taken])
    allocations = tuple(
        replace(held, gpus=tuple([gpu for gpu in held.gpus if gpu.id not in taken]))
        for held in node.allocations
    )
    return replace(node, gpus=gpus, allocations=allocations)
