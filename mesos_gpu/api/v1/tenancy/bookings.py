"""/v1/bookings: GPUs that queues have from one time to another."""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import BOOKING_SEE, BOOKING_WRITE
from mesos_gpu.api.http import note
from mesos_gpu.api.http.answers import json_answer, valid
from mesos_gpu.api.http.requests import Flag, Number, read_of, result_of
from mesos_gpu.api.http.rights import require, rights_of
from mesos_gpu.api.scheduler_api import SchedulerApi
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.queues import find_booking
from mesos_gpu.engine.reading.view import View
from mesos_gpu.errors import NotFound
from mesos_gpu.model.bookings.booking import AHEAD_DAYS, DAY_S, Booking
from mesos_gpu.policy.calendar.local_times import times
from mesos_gpu.wire.checking import object_of
from mesos_gpu.wire.tenancy.bookings import decode, encode, encode_spec

PAST: Final = Flag("past")
SINCE: Final = Number("since", -1, 0, 1e11, whole=False)
UNTIL: Final = Number("until", -1, 0, 1e11, whole=False)
_WINDOW_S: Final = 14 * DAY_S
_MAX_TIMES: Final = 400  # of one booking in an answer


class BookingHandlers:
    """The routes' functions."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        """Serve a scheduler's bookings."""
        self._scheduler = scheduler

    async def list(self, request: Request) -> Response:
        """GET /v1/bookings."""
        rights, past = rights_of(request), PAST.of(request)

        def look(view: View) -> dict[str, Any]:
            since, until = _window(request, view)
            seen = [
                each
                for each in view.bookings.values()
                if (past or not each.state.ended) and sees_booking(rights, each)
            ]
            seen.sort(key=lambda each: (each.state.ended, each.begins, each.id))
            return {
                "bookings": [shown(each, since, until) for each in seen],
                "since": since,
                "until": until,
            }

        return json_answer(await result_of(self._scheduler.read(look)))

    async def show(self, request: Request) -> Response:
        """GET /v1/bookings/{id}."""
        return json_answer(await self._shown(request, (await self._known(request)).id))

    async def make(self, request: Request) -> Response:
        """POST /v1/bookings."""
        spec = valid(decode(await read_of(request, object_of)))
        rights = rights_of(request)
        require(rights, BOOKING_WRITE, Subject(queue=spec.queue))
        booking_id = f"{spec.name}-{uuid.uuid4().hex[:8]}"
        note.about("booking", booking_id)
        await result_of(self._scheduler.request(ev.BookingMade(booking_id, spec, rights.caller.name)))
        body = await self._shown(request, booking_id)
        return json_answer(body, 201, {"Location": f"/v1/bookings/{booking_id}"})

    async def change(self, request: Request) -> Response:
        """PUT /v1/bookings/{id}: what is left out stays."""
        old = await self._known(request, write=True)
        value: Mapping[str, Any] = await read_of(request, object_of)
        spec = valid(decode({**encode_spec(old.spec), **value}))
        require(rights_of(request), BOOKING_WRITE, Subject(queue=spec.queue))
        await result_of(self._scheduler.request(ev.BookingChanged(old.id, spec)))
        return json_answer(await self._shown(request, old.id))

    async def cancel(self, request: Request) -> Response:
        """DELETE /v1/bookings/{id}."""
        old = await self._known(request, write=True)
        await result_of(self._scheduler.request(ev.BookingCancelled(old.id)))
        return json_answer(await self._shown(request, old.id))

    async def _known(self, request: Request, *, write: bool = False) -> Booking:
        """The booking that a request names.

        Raises:
            NotFound: There is none that who asks may see.
            Refusal: It may not be changed by who asks.
        """
        wanted, rights = str(request.path_params["id"]), rights_of(request)
        booking = await result_of(self._scheduler.read(lambda view: find_booking(view, wanted)))
        if booking is None or not sees_booking(rights, booking):
            raise NotFound(f"there is no booking {wanted}", remedy="list them with: mesos-gpu reserve list")
        note.about("booking", booking.id)
        if write:
            require(rights, BOOKING_WRITE, Subject(queue=booking.spec.queue))
        return booking

    async def _shown(self, request: Request, booking_id: str) -> dict[str, Any]:
        def look(view: View) -> dict[str, Any]:
            return shown(view.bookings[booking_id], *_window(request, view))

        return await result_of(self._scheduler.read(look))


def sees_booking(rights: Rights, booking: Booking) -> bool:
    """Whether somebody may see a booking: that of a queue whose bookings he sees, or his own."""
    mine = bool(booking.by) and booking.by == rights.caller.name
    return mine or rights.may(BOOKING_SEE, Subject(queue=booking.spec.queue))


def shown(booking: Booking, since: float, until: float) -> dict[str, Any]:
    """A booking as the interface shows it, with its times that touch a window."""
    spans = [span for span in [_latest(booking)] if span[0] < until and span[1] > since]
    if not booking.state.ended:
        spans += [
            (each.begins, each.ends)
            for each in times(booking.spec, max(since, booking.begins), until)
            if each.day > booking.day
        ]
    return encode(booking, spans[:_MAX_TIMES])


def _latest(booking: Booking) -> tuple[float, float]:
    """The time that a booking has now, or had last: as booked, or until it ended if that was in between."""
    begins, ends, ended_at = booking.begins, booking.ends, booking.ended_at
    if booking.state.ended and ended_at is not None and begins < ended_at < ends:
        return begins, ended_at
    return begins, ends


def _window(request: Request, view: View) -> tuple[float, float]:
    since = SINCE.of(request)
    since = view.now if since < 0 else since
    until = UNTIL.of(request)
    until = since + _WINDOW_S if until < 0 else until
    return since, min(until, since + AHEAD_DAYS * DAY_S)
