"""Choice of nodes for bookings: when the first job there must get notice, and again if a node becomes unsound.

Before that a booking has provisional nodes, so that no job starts there that could not leave in time. Chosen nodes
displace the least work, and leave room for all other bookings.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Final

from mesos_gpu.engine.bookings.beginning import begin, is_to_begin, lacking_words, lasts_words, offered_at
from mesos_gpu.engine.bookings.ground import booked_items, ground_of
from mesos_gpu.engine.bookings.notices import (
    SLACK_S,
    call_off,
    end_notice_at,
    has_notice,
    notice_at,
    on_places,
)
from mesos_gpu.engine.bookings.using import count_used, counted_up, purged_at
from mesos_gpu.engine.calendar.booked import jobs_of, others_on, owner_of, unfinished
from mesos_gpu.engine.charges import pool_of_node
from mesos_gpu.engine.gpus.gpu_status import is_closed, sound_of
from mesos_gpu.engine.indexes.provisional import Provisional
from mesos_gpu.engine.preemption.booking_room import BookingRoom
from mesos_gpu.engine.queue.backlog import Backlog
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.bookings.booking import MAX_S, Booking, BookingState, Place
from mesos_gpu.model.ids import AgentId, GpuId
from mesos_gpu.model.jobs.job import Job
from mesos_gpu.model.nodes.node import Node
from mesos_gpu.policy.calendar.book import Chosen, Ground, Item, laid_out
from mesos_gpu.policy.calendar.local_times import shown

# Ranks of jobs that would be displaced.
_IN_TIME: Final = 0  # ends before the begin of the booking
_LATE: Final = 1  # ends only after the begin
_STAYS: Final = 2  # ends by itself, at an unknown time


def choose_nodes(turn: Turn, backlog: Backlog) -> None:
    """Choose nodes of bookings when due, begin bookings, and update provisional nodes.

    It runs in each match while there are bookings.
    """
    last = turn.state.calendar.provisional
    now = Provisional({} if last is None else dict(last.places))
    for booking in unfinished(turn.state):
        count_used(turn, booking)
    choice = _Choice(turn, backlog, now)
    for booking in unfinished(turn.state):
        if booking.state.has_nodes:
            now.places.pop(booking.id, None)
            choice.replace_unsound(booking)
        else:
            choice.provide(booking)
        if is_to_begin(turn, turn.state.calendar.bookings[booking.id]):
            begin(turn, turn.state.calendar.bookings[booking.id])
    unfinished_ids = {unfinished_booking.id for unfinished_booking in unfinished(turn.state)}
    now.places = {key: places for key, places in now.places.items() if key in unfinished_ids}
    now.next_at = min(
        (_next_of(turn, unfinished_booking, now) for unfinished_booking in unfinished(turn.state)),
        default=inf,
    )
    turn.state.calendar.provisional = now
    if now.is_soon(turn.now):
        for node in turn.state.cluster.nodes.values():
            backlog.nodes.capacity(node)  # the state remembers what is offered, for a choice without offers


def _next_of(turn: Turn, booking: Booking, now: Provisional) -> float:
    """Return when a booking needs something next, in seconds since the epoch; now if something is due."""
    places = booking.places if booking.state.has_nodes else now.places.get(booking.id, ())
    jobs_there = [job for job in on_places(turn, booking, places).values() if job.spec.preemptible]
    leave = [(notice_at(turn, booking, job), job) for job in jobs_there]
    if booking.is_active:
        moments = [float(booking.ends)]
        if (purge_at := purged_at(turn, booking)) is not None:
            moments.append(purge_at)
        users = jobs_of(turn.state, booking)
        leave += [(end_notice_at(turn, booking, job), job) for job in users]
    else:
        moments = [float(booking.begins)]
    lacks = booking.state.has_nodes and len(places) < booking.spec.nodes and not booking.told
    if lacks and (offered := offered_at(turn)) is not None:
        moments.append(offered)
    moments += [at for at, job in leave if not has_notice(turn, job)]
    return max(min(moments), turn.now)


@dataclass
class _Choice:
    """Choice of nodes for bookings in one match."""

    turn: Turn
    backlog: Backlog
    now: Provisional

    @cached_property
    def _ground(self) -> Ground:
        """Bookable capacity without regard to other bookings."""
        return ground_of(self.turn.state)

    @cached_property
    def _nodes(self) -> list[Node]:
        """Nodes, the smaller ones first: larger ones are left for bookings that need them."""
        nodes = self.turn.state.cluster.nodes.values()
        return sorted(nodes, key=lambda node: (len(node.gpus), node.hostname, node.id))

    def provide(self, booking: Booking) -> None:
        """Give a booking provisional nodes, and choose them for good if the first job on them must get notice now."""
        places = self.now.places.get(booking.id, ())
        lacks = len(places) < booking.spec.nodes or self._is_obstructed(booking, places)
        if lacks or not self._are_there(booking, places) or self._is_taken(booking, places):
            places = self._choose(booking, firm=False)
            self.now.places[booking.id] = places
        jobs_there = on_places(self.turn, booking, places).values()
        notices = [notice_at(self.turn, booking, job) for job in jobs_there if job.spec.preemptible]
        if self.turn.now >= min([booking.begins, *notices]):
            self._begin_with(booking, self._choose(booking, firm=True))

    def _begin_with(self, booking: Booking, chosen: tuple[Place, ...]) -> None:
        """Give a booking its nodes, or as many as there are; missing ones are looked for until its end."""
        if chosen:
            self.now.places.pop(booking.id, None)
            booking = replace(booking, state=BookingState.PREPARING)
        elif booking.told or self._is_new():
            return
        begins = f"it begins {shown(booking.begins, booking.spec.zone)}"
        self._put_places(
            booking, chosen, f"its nodes are chosen: {_names(chosen)}; {begins}" if chosen else ""
        )

    def replace_unsound(self, booking: Booking) -> None:
        """Replace nodes of a booking that are unsound, and add nodes that it lacks."""
        sound = tuple([place for place in booking.places if self._is_sound(place)])
        if sound == booking.places and len(sound) >= booking.spec.nodes:
            return
        more = self._choose(booking, firm=True, beside=sound)
        if more or sound != booking.places or not (booking.told or self._is_new()):
            self._put_places(booking, (*sound, *more), _changed_words(booking, sound, more))

    def _put_places(self, booking: Booking, places: tuple[Place, ...], message: str) -> None:
        """Give a booking other places, with a message on what it lacks; jobs on its former places go on."""
        lacks = "" if self._is_new() else lacking_words(replace(booking, places=places))
        short = f"{lacks}: no other is sound, or can be free in time" if lacks else ""
        message = "; ".join(filter(None, (message, short))) or booking.message
        counted = counted_up(booking, self.turn.now)
        self.turn.put(replace(counted, places=places, told=bool(lacks), message=message))
        left = others_on(self.turn.state, booking, booking.gpus)
        call_off(self.turn, left, f"booking {booking.spec.name} has other nodes")

    def _is_new(self) -> bool:
        """Return whether offers of Mesos may still be missing, so that it is unknown how many nodes are missing."""
        return offered_at(self.turn) is not None

    def _is_sound(self, place: Place) -> bool:
        """Return whether the node of a place is open, has reported lately, and reports the place's GPUs as healthy."""
        state = self.turn.state
        node = state.cluster.nodes.get(place.agent_id)
        if node is None or node.lost_at is not None or is_closed(state, node):
            return False
        heard_at = max(node.reported_at or 0.0, state.mesos.registered_at)
        if self.turn.now - heard_at > self.turn.settings.programs.report_stale_s:
            return False  # a node without a recent report does not count as healthy
        return {*place.gpus} <= {gpu.id for gpu in sound_of(state, node, node.gpus)}

    def _are_there(self, booking: Booking, places: Collection[Place]) -> bool:
        """Return whether places are sound, and in the pool of a booking: a node may have changed its pool."""
        state = self.turn.state
        pools = {pool_of_node(state.quota.tree, state.cluster.nodes.get(place.agent_id)) for place in places}
        return pools <= {booking.spec.pool} and all(map(self._is_sound, places))

    def _is_obstructed(self, booking: Booking, places: Collection[Place]) -> bool:
        """Return whether a job on some places cannot leave them in time; other places may be free by now."""
        jobs_there = on_places(self.turn, booking, places).values()
        latest = self.turn.now - SLACK_S
        return any(
            not job.spec.preemptible or notice_at(self.turn, booking, job) < latest for job in jobs_there
        )

    def _is_taken(self, booking: Booking, places: Collection[Place]) -> bool:
        """Return whether other bookings have some GPUs of some places."""
        taken = self._taken(booking)
        return any(gpu in taken for place in places for gpu in place.gpus)

    def _taken(self, booking: Booking) -> set[GpuId]:
        """Return the GPUs of other bookings that overlap this one, and of provisional nodes of earlier bookings."""
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
        """Return the places that displace the least work and leave room for other bookings, as many as there are.

        Args:
            booking: Booking without nodes, or with too few.
            firm: Whether GPUs must be free, now or soon: jobs that are not preemptible stay.
            beside: Places that the booking has.
        """
        cheapest = self._cheapest(booking, None, firm=firm, beside=beside)
        if not cheapest or self._leaves_room(booking, (*beside, *cheapest)):
            return cheapest
        planned = self._planned(booking)
        other = () if planned is None else self._cheapest(booking, planned, firm=firm, beside=beside)
        return cheapest if len(other) < len(cheapest) else other

    def _items(self, booking: Booking, chosen: tuple[Chosen, ...]) -> list[Item]:
        """Return a booking with chosen GPUs and all others as items of the calendar."""
        own_item = Item(
            booking.id,
            booking.spec,
            booking.begins,
            booking.ends,
            chosen,
            owner_of(self.turn.state, booking.spec),
        )
        return [own_item, *booked_items(self.turn.state, self.turn.now, booking.id, booking.ends + MAX_S)]

    def _leaves_room(self, booking: Booking, places: tuple[Place, ...]) -> bool:
        """Return whether all bookings fit if one gets some places."""
        chosen = tuple(Chosen(place.agent_id, self._model(place), len(place.gpus)) for place in places)
        return laid_out(self._ground, self._items(booking, chosen), booking.id) is not None

    def _planned(self, booking: Booking) -> set[AgentId] | None:
        """Return the nodes of a booking in a layout in which all bookings fit; None without such a layout."""
        places = laid_out(self._ground, self._items(booking, ()), booking.id)
        if places is None:
            return None
        return {AgentId(place.node) for place in places[booking.id, booking.begins]}

    def _model(self, place: Place) -> str:
        """Return the model of the GPUs of a place; "" if not known."""
        gpu_place = self.turn.state.cluster.place_of(place.gpus[0])
        return "" if gpu_place is None else gpu_place[1].model

    def _cheapest(
        self, booking: Booking, only: Collection[AgentId] | None, *, firm: bool, beside: tuple[Place, ...]
    ) -> tuple[Place, ...]:
        """Return places on some nodes that displace the least work, for the nodes that a booking still lacks."""
        used = {place.agent_id for place in beside}
        room = BookingRoom(
            self.turn, self.backlog, booking, self._taken(booking), partial(self._rank, booking, firm)
        )

        def serves(node: Node) -> bool:
            return node.id not in used and (only is None or node.id in only) and self._serves(booking, node)

        return room.find(self._nodes, booking.spec.nodes - len(beside), serves)

    def _serves(self, booking: Booking, node: Node) -> bool:
        """Return whether a node may be used for a booking: open, in its pool, and with enough GPUs."""
        state = self.turn.state
        if node.lost_at is not None or is_closed(state, node) or len(node.gpus) < booking.spec.gpus:
            return False
        return pool_of_node(state.quota.tree, node) == booking.spec.pool

    def _rank(self, booking: Booking, firm: bool, job: Job) -> int | None:
        """Return the rank in which a job is displaced; None if it stays where GPUs must be free."""
        if not job.spec.preemptible:
            return None if firm else _STAYS
        return _LATE if notice_at(self.turn, booking, job) < self.turn.now - SLACK_S else _IN_TIME


def _changed_words(booking: Booking, kept: tuple[Place, ...], more: tuple[Place, ...]) -> str:
    """Return the message on replaced places of a booking; "" if nothing replaces them."""
    if not more:
        return ""
    if not booking.places and not booking.told:  # the booking has got nodes for the first time
        return f"its nodes are chosen: {_names(more)}; {lasts_words(booking)}"
    former = _names([place for place in booking.places if place not in kept]) or "what was lacking"
    return f"{former} is replaced by {_names(more)}"


def _names(places: Iterable[Place]) -> str:
    """Return the host names of places, for messages."""
    return ", ".join(place.hostname for place in places)
