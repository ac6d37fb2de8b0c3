"""Routes of bookings: GPUs that queues have at given times."""

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
_MAX_TIMES: Final = 400  # occurrences of one booking in an answer


class BookingHandlers:
    """HTTP handlers of bookings."""

    def __init__(self, scheduler: SchedulerApi) -> None:
        self._scheduler = scheduler

    async def list(self, request: Request) -> Response:
        """GET /v1/bookings: the visible bookings."""
        rights, past = rights_of(request), PAST.of(request)

        def look(view: View) -> dict[str, Any]:
            since, until = _window(request, view)
            bookings = [
                booking
                for booking in view.bookings.values()
                if (past or not booking.state.ended) and sees_booking(rights, booking)
            ]
            bookings.sort(key=lambda booking: (booking.state.ended, booking.begins, booking.id))
            return {
                "bookings": [shown(booking, since, until) for booking in bookings],
                "since": since,
                "until": until,
            }

        return json_answer(await result_of(self._scheduler.read(look)))

    async def show(self, request: Request) -> Response:
        """GET /v1/bookings/{id}: a booking."""
        return json_answer(await self._shown(request, (await self._known(request)).id))

    async def make(self, request: Request) -> Response:
        """POST /v1/bookings: make a booking."""
        spec = valid(decode(await read_of(request, object_of)))
        rights = rights_of(request)
        require(rights, BOOKING_WRITE, Subject(queue=spec.queue))
        booking_id = f"{spec.name}-{uuid.uuid4().hex[:8]}"
        note.about("booking", booking_id)
        await result_of(self._scheduler.request(ev.BookingMade(booking_id, spec, rights.caller.name)))
        body = await self._shown(request, booking_id)
        return json_answer(body, 201, {"Location": f"/v1/bookings/{booking_id}"})

    async def change(self, request: Request) -> Response:
        """PUT /v1/bookings/{id}: change a booking; fields that are left out stay."""
        old = await self._known(request, write=True)
        value: Mapping[str, Any] = await read_of(request, object_of)
        spec = valid(decode({**encode_spec(old.spec), **value}))
        require(rights_of(request), BOOKING_WRITE, Subject(queue=spec.queue))
        await result_of(self._scheduler.request(ev.BookingChanged(old.id, spec)))
        return json_answer(await self._shown(request, old.id))

    async def cancel(self, request: Request) -> Response:
        """DELETE /v1/bookings/{id}: cancel a booking."""
        old = await self._known(request, write=True)
        await result_of(self._scheduler.request(ev.BookingCancelled(old.id)))
        return json_answer(await self._shown(request, old.id))

    async def _known(self, request: Request, *, write: bool = False) -> Booking:
        """Return the booking that a request names.

        Raises:
            NotFound: There is no such visible booking.
            Refusal: The caller may not change it.
        """
        booking_name, rights = str(request.path_params["id"]), rights_of(request)
        booking = await result_of(self._scheduler.read(lambda view: find_booking(view, booking_name)))
        if booking is None or not sees_booking(rights, booking):
            raise NotFound(
                f"there is no booking {booking_name}", remedy="list them with: mesos-gpu reserve list"
            )
        note.about("booking", booking.id)
        if write:
            require(rights, BOOKING_WRITE, Subject(queue=booking.spec.queue))
        return booking

    async def _shown(self, request: Request, booking_id: str) -> dict[str, Any]:
        def look(view: View) -> dict[str, Any]:
            return shown(view.bookings[booking_id], *_window(request, view))

        return await result_of(self._scheduler.read(look))


def sees_booking(rights: Rights, booking: Booking) -> bool:
    """Return whether the caller sees a booking: it is the caller's own, or of a queue whose bookings are visible."""
    mine = bool(booking.by) and booking.by == rights.caller.name
    return mine or rights.may(BOOKING_SEE, Subject(queue=booking.spec.queue))


def shown(booking: Booking, since: float, until: float) -> dict[str, Any]:
    """Return the JSON of a booking, with its occurrences in a time window."""
    spans = [span for span in [_latest(booking)] if span[0] < until and span[1] > since]
    if not booking.state.ended:
        spans += [
            (occurrence.begins, occurrence.ends)
            for occurrence in times(booking.spec, max(since, booking.begins), until)
            if occurrence.day > booking.day
        ]
    return encode(booking, spans[:_MAX_TIMES])


def _latest(booking: Booking) -> tuple[float, float]:
    """Return the current or last occurrence of a booking: as booked, or until it ended early."""
    begins, ends, ended_at = booking.begins, booking.ends, booking.ended_at
    if booking.state.ended and ended_at is not None and begins < ended_at < ends:
        return begins, ended_at
    return begins, ends


def _window(request: Request, view: View) -> tuple[float, float]:
    """Return the time window in a request: beginning and end, in seconds since the epoch."""
    since = SINCE.of(request)
    since = view.now if since < 0 else since
    until = UNTIL.of(request)
    until = since + _WINDOW_S if until < 0 else until
    return since, min(until, since + AHEAD_DAYS * DAY_S)
