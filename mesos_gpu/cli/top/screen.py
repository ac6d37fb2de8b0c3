"""The screen of `top`: drawing and key handling."""

import shutil
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mesos_gpu.cli import output
from mesos_gpu.cli.top.live import DOWN, ENTER, ESCAPE, RUB, UP, Screen
from mesos_gpu.cli.top.view import Row, Seen, View
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mesos_gpu.cli.client import Client

_SORTS: Final = {"m": "memory", "p": "compute"}
_ABOVE_ROWS, _BELOW_ROWS = 3, 1  # lines above the rows: status, an empty line and headers; below: keys
_MAX_WORDS: Final = 60  # characters of a filter


class Watch:
    """State of the screen, and dispatch of keys."""

    def __init__(
        self,
        client: "Client",
        views: Sequence[View],
        view: View,
        order: str,
        nodes: Sequence[str],
        words: str,
        interval_s: float,
    ) -> None:
        self._client, self._views, self._nodes, self._interval_s = client, views, nodes, interval_s
        self._view, self._order, self._words = view, order, words
        self._seen, self._old = Seen((), "", None), ""  # `_old`: why the shown data is outdated
        self._said = ""  # message about the latest key
        self._chosen = ""  # the id of a row
        self._typing = False  # whether words of the filter are being typed
        self._asking: str | None = None  # the job to be killed after confirmation

    def run(self) -> None:
        """Draw until the user quits. While the scheduler is unreachable, the last data stays, marked as outdated.

        Raises:
            MesosGpuError: The first request failed.
        """
        self._seen = self._view.look(self._client, self._nodes)
        look_at = time.monotonic() + self._interval_s
        with Screen() as screen:
            while True:
                screen.show(self._picture())
                key = screen.key(max(look_at - time.monotonic(), 0))
                if key and self._pressed(key):
                    return
                if time.monotonic() >= look_at:
                    self._look()
                    look_at = time.monotonic() + self._interval_s

    def _look(self) -> None:
        try:
            self._seen, self._old = self._view.look(self._client, self._nodes), ""
        except MesosGpuError as error:
            self._old = f"outdated: {error.what}"

    # --- keys

    def _pressed(self, key: str) -> bool:
        """Handle a key; return whether to quit."""
        self._said = ""
        if self._asking is not None:
            self._answered(self._asking, key)
        elif self._typing:
            self._typed(key)
        elif key.lower() == "q":
            return True
        else:
            self._do(key)
        return False

    def _do(self, key: str) -> None:
        """Handle a key outside of questions and filters."""
        if key in (UP, DOWN):
            self._choose(-1 if key == UP else 1)
        elif key == "/":
            self._typing, self._words = True, ""
        elif key == ESCAPE:
            self._words = self._chosen = ""
        elif key.isdigit() and 0 < int(key) <= len(self._views):
            self._turn(self._views[int(key) - 1])
        elif key.lower() == "s":
            self._order = self._next_order()
        elif key.lower() == "c":
            self._order = self._view.orders[0]
        elif _SORTS.get(key.lower()) in self._view.orders:
            self._order = _SORTS[key.lower()]
        elif key.lower() == "k":
            self._ask()

    def _turn(self, view: View) -> None:
        if view is not self._view:
            self._view, self._order, self._chosen = view, view.orders[0], ""
            self._seen = Seen((), "", None)
            self._look()

    def _next_order(self) -> str:
        orders = self._view.orders
        return orders[(orders.index(self._order) + 1) % len(orders)]

    def _choose(self, step: int) -> None:
        ids = [row.id for row in self._rows()]
        if ids:
            at = ids.index(self._chosen) + step if self._chosen in ids else 0
            self._chosen = ids[min(max(at, 0), len(ids) - 1)]

    def _typed(self, key: str) -> None:
        if key in (ENTER, ESCAPE):
            self._typing = False
            self._words = "" if key == ESCAPE else self._words
        elif key == RUB:
            self._words = self._words[:-1]
        elif len(key) == 1 and key.isprintable():
            self._words = (self._words + key)[:_MAX_WORDS]

    def _ask(self) -> None:
        row = next((row for row in self._rows() if row.id == self._chosen), None)
        if row is None:
            self._said = "choose a row first, with the arrows"
        elif row.job is None:
            self._said = "this row has no job"
        else:
            self._asking = row.job

    def _answered(self, job: str, key: str) -> None:
        self._asking = None
        if key.lower() != "y":
            self._said = f"{job} continues"
            return
        try:
            self._client.kill(job)
            self._said = f"{job} is being killed"
        except MesosGpuError as error:
            self._said = f"{job}: {error.what}"

    # --- the picture

    def _rows(self) -> list[Row]:
        return self._view.chosen(self._seen.rows, self._order, self._words)

    def _picture(self) -> "RenderableType":
        """Return the picture of the view: status, rows that fit, and keys."""
        from rich.console import Group
        from rich.text import Text

        rows = self._rows()
        room = max(shutil.get_terminal_size().lines - _ABOVE_ROWS - _BELOW_ROWS, 1)
        shown = self._window(rows, room if len(rows) <= room else max(room - 1, 1))
        picture, _ = output.drawn(self._view.headers, [row.cells for row in shown], fit=self._view.fit)
        for number, row in enumerate(shown):
            picture.rows[number].style = "reverse" if row.id == self._chosen else ""
        more = [] if len(shown) == len(rows) else [Text(f"… and {len(rows) - len(shown)} rows more")]
        return Group(
            Text(output.clean(self._head()), style=self._style(), no_wrap=True, overflow="ellipsis"),
            Text(""),
            picture if rows else Text("No row contains these words." if self._words else self._view.empty),
            *more,
            Text(output.clean(self._foot()), style="dim", no_wrap=True, overflow="ellipsis"),
        )

    def _window(self, rows: Sequence[Row], room: int) -> Sequence[Row]:
        """Return the rows that fit, including the selected one."""
        at = next((i for i, row in enumerate(rows) if row.id == self._chosen), 0)
        first = max(at - room + 1, 0)
        return rows[first : first + room]

    def _head(self) -> str:
        if self._asking is not None:
            return f"Kill {self._asking}? y: yes, any other key: no"
        if self._said or self._old:
            return self._said or self._old
        return f"{self._seen.summary}; every {output.span(self._interval_s)}, by {self._order}"

    def _style(self) -> str:
        return "bold red" if self._asking is not None or self._said or self._old else "bold"

    def _foot(self) -> str:
        if self._typing:
            return f"/{self._words}▏  Enter: apply, Esc: show all"
        words = f"   only /{self._words}" if self._words else ""
        views = " ".join(f"{i} {view.name}" for i, view in enumerate(self._views, 1))
        return f"q quit   {views}   s sort   / filter   ↑↓ k kill{words}"
