"""`mesos-gpu events`: events of jobs, budgets, GPUs, nodes and apps."""

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.interrupt import terminated
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, Form, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.types import PAST
from mesos_gpu.errors import Unavailable
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.wire.plain import clean_json

if TYPE_CHECKING:
    from mesos_gpu.api.spec.events import Event, Events
    from mesos_gpu.cli.client import Client

_EVENTS: Final[Listing["Event", "Event"]] = Listing(
    columns=(
        Col("NUMBER", lambda event: event["number"]),
        Col("TIME", lambda event: output.short_stamp(event["at"]), lambda event: event["at"]),
        Col("KIND", lambda event: event["kind"]),
        Col("ON", lambda event: event["job_id"] or event["gpu"] or event["node"] or event["deployment"]),
        Col("USER", lambda event: event["user"]),
        Col("QUEUE", lambda event: event["queue"], wide=True),
        Col("WHAT", lambda event: _what(event)),
    ),
    id=lambda event: str(event["number"]),
    rows=lambda event: (event,),
    filters={},
    fit=Fit(cut=("WHAT", "ON"), leave=("NUMBER", "QUEUE", "USER"), ids=("ON",), paths=("QUEUE",), wrap=True),
)
_WAIT_S: Final = 30.0  # timeout of one long-polling request
_AGAIN_S: Final = 1.0
_PAGE: Final = 1000


@click.command()
@click.option(
    "--kind",
    "kind",
    multiple=True,
    type=click.Choice([kind.value for kind in EventKind]),
    metavar="KIND",
    help=f"Only events of this kind; may be repeated: {', '.join(kind.value for kind in EventKind)}.",
)
@click.option("--job", metavar="ID", help="Only events of jobs whose ID begins with ID.")
@click.option("--user", multiple=True, metavar="NAME", help="Only events of this user's jobs.")
@click.option(
    "--queue", multiple=True, metavar="PATH", help="Only events of this queue and the queues below it."
)
@click.option("--app", "of_app", multiple=True, metavar="ID", help="Only events of this app.")
@click.option("--node", multiple=True, metavar="HOST", help="Only events of this node and its GPUs.")
@click.option("--since", type=PAST, help="Only later events: 2h (ago), or 2027-03-01T08:00.")
@click.option(
    "--after",
    type=click.IntRange(0),
    metavar="NUMBER",
    help="Only events with a higher number: continue where an earlier call ended.",
)
@click.option(
    "-n",
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Number of latest events.",
)
@click.option("-f", "--follow", is_flag=True, help="Keep printing new events, until Ctrl-C.")
@list_options(_EVENTS)
@api_command
def events(
    app: App,
    of_app: tuple[str, ...],
    after: int | None,
    limit: int,
    follow: bool,
    asked: "Asked[Event, Event]",
    **filters: Any,
) -> None:
    """List recent events, newest last.

    The latest 10,000 events are kept, also while the scheduler is down. With -f no event is missed when it restarts:
    events are numbered, and those after the last one are requested; with --json each event is a line.

    \b
      mesos-gpu events --kind failed --kind gpu -f
      mesos-gpu events --after 1795449600123 --json
    """
    if follow and (asked.form not in (Form.TABLE, Form.JSON) or asked.columns or asked.sort or asked.watch):
        raise click.UsageError(
            "--follow prints lines, or documents with --json: remove the other format options"
        )
    client = app.client()
    query = {name: value for name, value in {**filters, "app": of_app}.items() if value}
    known = {"newest": "true"} if after is None else {"after": after}

    def look() -> "Events":
        return _events(client, {**query, **known, "limit": limit})

    first = look()
    if after is not None:
        _say_missed(after, first["first"])
    if not follow:
        show(asked, _looking(first, look))
        return
    as_json = asked.form is Form.JSON
    for event in first["events"]:
        _print(event, as_json)
    with terminated():
        _follow(client, query, first["last"], as_json)


def _looking(first: "Events", look: "Callable[[], Events]") -> "Callable[[], Seen[Event]]":
    """Return a function that returns the first answer, and then new ones on each call."""
    first_answers = [first]

    def seen() -> "Seen[Event]":
        events = first_answers.pop() if first_answers else look()
        ends = {"last": events["last"], "first": events["first"]}
        return Seen(events["events"], "No events.", lambda chosen: {"events": chosen, **ends})

    return seen


def _events(client: "Client", query: dict[str, Any], *, wait_s: float = 0.0) -> "Events":
    """Return events; with `after` in the query, wait up to `wait_s` for one."""
    from mesos_gpu.api.spec.events import Events

    return client.get("/v1/events", Events, {**query, "timeout_s": wait_s}, wait_s=wait_s)


def _follow(client: "Client", query: dict[str, Any], last: int, as_json: bool) -> None:
    """Print events after a number; wait for an unreachable scheduler as long as needed."""
    away = False
    while True:
        try:
            answer = _events(client, {**query, "after": last, "limit": _PAGE}, wait_s=_WAIT_S)
        except Unavailable as error:
            if not away:
                output.note(f"{error.what}: waiting for it")
            away = True
            time.sleep(_AGAIN_S)
            continue
        if away:
            output.note("the scheduler is back")
            away = False
        _say_missed(last, answer["first"])
        for event in answer["events"]:
            _print(event, as_json)
        last = answer["last"]


def _say_missed(after: int, first: int) -> None:
    if 0 < after < first:
        output.note("earlier events may be missing, because only the latest are kept")


def _print(event: "Event", as_json: bool) -> None:
    if as_json:
        click.echo(clean_json(json.dumps(event, ensure_ascii=False)))
    else:
        cells = [col.value(event) for col in _EVENTS.columns[1:]]
        output.line("  ".join(str(cell) for cell in cells if cell))


def _what(event: "Event") -> str:
    budget = event["budget"]
    if budget is not None:
        whose = f" of {budget['user']}" if budget["user"] else ""
        return f"the budget{whose} of {budget['queue']} is used to {budget['percent']} %"
    code = f"exit code {event['exit_code']}" if event["exit_code"] else ""
    return ": ".join(filter(None, (code, event["message"])))
