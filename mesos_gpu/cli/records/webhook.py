"""`mesos-gpu webhook`: URLs that receive events."""

import sys
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import quote

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import Ref
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.tasks.event import EventKind
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.cluster.hooks import DeadLetter, Webhook, WebhookVersion
    from mesos_gpu.cli.client import Client

_MODULE: Final = "mesos_gpu.cli.records.webhook"


def _names(client: "Client") -> list[str]:
    from mesos_gpu.api.spec.cluster.hooks import Webhooks

    return [hook["name"] for hook in client.call("GET", "/v1/webhooks", Webhooks)["webhooks"]]


NAME: Final = Ref("name", r"[a-z0-9][a-z0-9.-]{0,62}", "a name of a-z, 0-9, '.' and '-'", _names)


class _Webhooks(Table):
    table: ClassVar = {
        "list": (f"{_MODULE}:list_webhooks", "List webhooks and their pending events."),
        "show": (_MODULE, "Show a webhook."),
        "add": (_MODULE, "Create a webhook, or change it; a new secret is printed once."),
        "remove": (_MODULE, "Remove webhooks, and their pending events."),
        "test": (_MODULE, "Send a test event, and show the result."),
        "dead": (_MODULE, "List events that could not be sent and were given up."),
        "retry": (_MODULE, "Send events that were given up again."),
        "versions": (_MODULE, "List the changes of webhooks, latest first."),
    }


@click.group(cls=_Webhooks)
def webhook() -> None:
    """Webhooks: URLs that receive events.

    Events are sent in order, each until the receiver answers with 2xx; after 12 tries, over about half an hour, an
    event is given up as a dead letter. The scheduler's operator sets the permitted receivers (scheduler --webhook-to).
    """


def _kinds(hook: "Webhook") -> str:
    return " ".join(hook["kinds"]) or "jobs with --notify"


_WEBHOOKS: Final[Listing["Webhook", "Webhook"]] = Listing(
    columns=(
        Col("NAME", lambda hook: hook["name"]),
        Col("URL", lambda hook: hook["url"]),
        Col("EVENTS", _kinds),
        Col("QUEUES", lambda hook: " ".join(hook["queues"]) or "all"),
        Col("WAITING", lambda hook: hook["waiting"]),
        Col("DEAD", lambda hook: hook["dead"]),
        aged("CHANGED", lambda hook: hook["at"], wide=True),
        Col("BY", lambda hook: hook["by"], wide=True),
        Col("COMMENT", lambda hook: hook["comment"]),
    ),
    id=lambda hook: hook["name"],
    rows=lambda hook: (hook,),
    filters={By.NAME: lambda hook: (hook["name"],)},
    fit=Fit(cut=("URL", "EVENTS", "COMMENT"), leave=("COMMENT", "QUEUES", "EVENTS")),
)


@click.command("list")
@list_options(_WEBHOOKS)
@api_command
def list_webhooks(app: App, asked: "Asked[Webhook, Webhook]") -> None:
    """List webhooks and their pending events."""
    from mesos_gpu.api.spec.cluster.hooks import Webhooks

    client = app.client()
    nothing = "No webhooks; create one with: mesos-gpu webhook add"
    empty = "No such webhook." if asked.filtered else nothing

    def load() -> "Seen[Webhook]":
        answer = client.call("GET", "/v1/webhooks", Webhooks)
        return Seen(answer["webhooks"], empty, lambda hooks: {**answer, "webhooks": hooks})

    show_list(asked, load)


@click.command()
@click.argument("name", type=NAME)
@json_option
@api_command
def show(app: App, name: str, as_json: bool) -> None:
    """Show a webhook.

    Only the host of its URL is shown, because the rest may be secret.
    """
    from mesos_gpu.api.spec.cluster.hooks import Webhook

    hook = app.client().call("GET", _path(name), Webhook)
    if as_json:
        output.document(hook)
        return
    output.pairs(
        [
            ("name", hook["name"]),
            ("url", hook["url"]),
            ("events", _kinds(hook)),
            ("queues", " ".join(hook["queues"]) or "all"),
            ("comment", hook["comment"] or None),
            ("changed", f"{output.stamp(hook['at'])}{hook['by'] and ' by ' + hook['by']}"),
            ("waiting", hook["waiting"]),
            ("dead", hook["dead"]),
        ]
    )


@click.command()
@click.argument("name", type=NAME)
@click.argument("address", metavar="URL")
@click.option(
    "--event",
    "kinds",
    multiple=True,
    type=click.Choice([kind.value for kind in EventKind]),
    metavar="KIND",
    help="Kind of events to send, as listed by `mesos-gpu events`; may be repeated. Without any, only events of jobs "
    "that name the webhook (run --notify) are sent.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="PATH",
    help="Only events of this queue and the queues below it; default: all.",
)
@click.option("--comment", default="", help="Description of its purpose.")
@json_option
@api_command
def add(
    app: App,
    name: str,
    address: str,
    kinds: tuple[str, ...],
    queues: tuple[str, ...],
    comment: str,
    as_json: bool,
) -> None:
    """Create a webhook, or change it; a new secret is printed once.

    Only the secret is printed on stdout. The receiver uses it to verify the signature of each request according to
    Standard Webhooks (standardwebhooks.com): HMAC-SHA256 over id, time and body. A webhook with a changed URL gets a
    new secret. A URL that is itself secret can be given on stdin, with - as URL: then it does not appear in process
    lists.

    \b
      mesos-gpu webhook add ops https://hooks.example.com/gpu --event gpu --event node
      mesos-gpu webhook add done https://hooks.example.com/done      # for run --notify done
    """
    from mesos_gpu.api.spec.cluster.hooks import WebhookMade

    url = sys.stdin.readline().strip() if address == "-" else address
    request = {"url": url, "kinds": list(kinds), "queues": list(queues), "comment": comment}
    answer = app.client().call("PUT", _path(name), WebhookMade, body=request)
    if as_json:
        output.document(answer)
        return
    if answer["secret"] is None:
        output.note(f"webhook {name} was changed, and keeps its secret")
        return
    click.echo(answer["secret"])
    output.note(f"this is the secret of webhook {name}; store it now, it is not shown again")


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=NAME)
@yes_option
@api_command
def remove(app: App, names: tuple[str, ...], yes: bool) -> None:
    """Remove webhooks, and their pending events."""
    from mesos_gpu.api.spec.cluster.hooks import Webhook

    output.ask(f"Remove {', '.join(names)}, and their pending events?", yes=yes)
    for name in names:
        app.client().call("DELETE", _path(name), Webhook)
        output.line(f"webhook {name} was removed")


@click.command()
@click.argument("name", type=NAME)
@json_option
@api_command
def test(app: App, name: str, as_json: bool) -> None:
    """Send a test event, and show the result.

    It is sent once, independently of pending events; exit code 1 if the receiver did not accept it.
    """
    from mesos_gpu.api.spec.cluster.hooks import WebhookTest

    result = app.client().call("POST", _path(name, "test"), WebhookTest, body={})
    if as_json:
        output.document(result)
    if not result["ok"]:
        raise MesosGpuError(
            f"webhook {name} did not accept the test: {result['error']}",
            remedy="check the receiver's log, and --webhook-to of the scheduler",
        )
    if not as_json:
        output.line(f"webhook {name} answered {result['status']} after {result['took_s']:.2f}s")


_DEAD: Final[Listing["DeadLetter", "DeadLetter"]] = Listing(
    columns=(
        Col("ID", lambda letter: letter["id"]),
        Col("EVENT", lambda letter: letter["event"]),
        Col("KIND", lambda letter: letter["kind"]),
        Col("TRIES", lambda letter: letter["tries"]),
        Col(
            "GIVEN_UP",
            lambda letter: output.short_stamp(letter["given_up_at"]),
            lambda letter: letter["given_up_at"],
        ),
        Col("ERROR", lambda letter: letter["error"]),
    ),
    id=lambda letter: str(letter["id"]),
    rows=lambda letter: (letter,),
    filters={},
    fit=Fit(cut=("ERROR",), leave=("EVENT", "TRIES")),
)


@click.command()
@click.argument("name", type=NAME)
@list_options(_DEAD)
@api_command
def dead(app: App, name: str, asked: "Asked[DeadLetter, DeadLetter]") -> None:
    """List events that could not be sent and were given up.

    The latest 1,000 are kept. `webhook retry` accepts their IDs.
    """
    from mesos_gpu.api.spec.cluster.hooks import DeadLetters

    client = app.client()

    def load() -> "Seen[DeadLetter]":
        letters = client.call("GET", _path(name, "dead"), DeadLetters)
        return Seen(letters["dead"], "No events were given up.", lambda dead: {"dead": dead})

    show_list(asked, load)


@click.command()
@click.argument("name", type=NAME)
@click.argument("ids", metavar="[ID]...", nargs=-1, type=click.IntRange(1))
@json_option
@api_command
def retry(app: App, name: str, ids: tuple[int, ...], as_json: bool) -> None:
    """Send events that were given up again.

    Without IDs all of them, else the dead letters with these IDs.
    """
    from mesos_gpu.api.spec.cluster.hooks import Retried

    result = app.client().call("POST", _path(name, "retry"), Retried, body={"ids": list(ids)})
    if as_json:
        output.document(result)
    else:
        output.line(f"events sent again: {result['retried']}")


_VERSIONS: Final[Listing["WebhookVersion", "WebhookVersion"]] = Listing(
    columns=(
        Col("VERSION", lambda record: record["version"]),
        Col("AT", lambda record: output.stamp(record["at"]), lambda record: record["at"]),
        Col("BY", lambda record: record["by"]),
        Col("WHAT", lambda record: record["what"]),
        Col("WEBHOOKS", lambda record: " ".join(record["webhooks"])),
    ),
    id=lambda record: str(record["version"]),
    rows=lambda record: (record,),
    filters={By.USER: lambda record: (record["by"],)},
    fit=Fit(cut=("WEBHOOKS", "WHAT"), leave=("WEBHOOKS", "BY")),
)


@click.command()
@list_options(_VERSIONS)
@api_command
def versions(app: App, asked: "Asked[WebhookVersion, WebhookVersion]") -> None:
    """List the changes of webhooks, latest first."""
    from mesos_gpu.api.spec.cluster.hooks import WebhookVersions

    client = app.client()
    empty = "No such change." if asked.filtered else "No webhook was ever created."

    def load() -> "Seen[WebhookVersion]":
        answer = client.call("GET", "/v1/webhook-versions", WebhookVersions)
        return Seen(answer["versions"], empty, lambda versions: {"versions": versions})

    show_list(asked, load)


def _path(*parts: str) -> str:
    return "/".join(("/v1/webhooks", *(quote(part, safe="") for part in parts)))
