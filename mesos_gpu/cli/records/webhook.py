"""`mesos-gpu webhook`: who is told what happens."""

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
        "list": (f"{_MODULE}:list_webhooks", "List webhooks."),
        "show": (_MODULE, "Show a webhook."),
        "add": (_MODULE, "Make a webhook, or change it; a new one's secret is printed this once."),
        "remove": (_MODULE, "Forget webhooks, and what was to be sent to them."),
        "test": (_MODULE, "Send a test, and say what came of it."),
        "dead": (_MODULE, "List what could not be sent and was given up."),
        "retry": (_MODULE, "Try what was given up again."),
        "versions": (_MODULE, "List the changes of webhooks, the latest first."),
    }


@click.group(cls=_Webhooks)
def webhook() -> None:
    """Webhooks: addresses that are told what happens.

    Each event is sent until the receiver answers with 2xx, in order; after 12 tries, over about half an hour, it is a
    dead letter. The scheduler's operator says which receivers there may be (--webhook-to of the scheduler).
    """


def _kinds(hook: "Webhook") -> str:
    return " ".join(hook["kinds"]) or "of jobs that name it"


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
    """List webhooks."""
    from mesos_gpu.api.spec.cluster.hooks import Webhooks

    client = app.client()
    nothing = "There is no webhook; make one with: mesos-gpu webhook add"
    empty = "No such webhook." if asked.filtered else nothing

    def look() -> "Seen[Webhook]":
        known = client.call("GET", "/v1/webhooks", Webhooks)
        return Seen(known["webhooks"], empty, lambda hooks: {**known, "webhooks": hooks})

    show_list(asked, look)


@click.command()
@click.argument("name", type=NAME)
@json_option
@api_command
def show(app: App, name: str, as_json: bool) -> None:
    """Show a webhook.

    Of its address only the host is shown: the rest may be a secret.
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
    help="Kind of event that it is told, as `mesos-gpu events` has them; may be repeated. Without any it is told only "
    "of jobs that name it (run --notify).",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="PATH",
    help="Only of that queue and those below it; default: all.",
)
@click.option("--comment", default="", help="Purpose, for people.")
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
    """Make a webhook, or change it; a new one's secret is printed this once.

    The secret alone is on stdout. By it the receiver checks the signature of each request, as Standard Webhooks
    (standardwebhooks.com) has it: HMAC-SHA256 over id, time and body. A hook that gets another address gets another
    secret. An address that is a secret itself comes by stdin, as -: there no list of processes has it.

    \b
      mesos-gpu webhook add ops https://hooks.example.com/gpu --event gpu --event node
      mesos-gpu webhook add done https://hooks.example.com/done      # for run --notify done
    """
    from mesos_gpu.api.spec.cluster.hooks import WebhookMade

    url = sys.stdin.readline().strip() if address == "-" else address
    request = {"url": url, "kinds": list(kinds), "queues": list(queues), "comment": comment}
    made = app.client().call("PUT", _path(name), WebhookMade, body=request)
    if as_json:
        output.document(made)
        return
    if made["secret"] is None:
        output.note(f"webhook {name} is changed, and keeps its secret")
        return
    click.echo(made["secret"])
    output.note(f"this is the secret of webhook {name}; it is not shown again")


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=NAME)
@yes_option
@api_command
def remove(app: App, names: tuple[str, ...], yes: bool) -> None:
    """Forget webhooks, and what was to be sent to them."""
    from mesos_gpu.api.spec.cluster.hooks import Webhook

    output.ask(f"Remove {', '.join(names)}, and what waits to be sent there?", yes=yes)
    for name in names:
        app.client().call("DELETE", _path(name), Webhook)
        output.line(f"webhook {name} is removed")


@click.command()
@click.argument("name", type=NAME)
@json_option
@api_command
def test(app: App, name: str, as_json: bool) -> None:
    """Send a test, and say what came of it.

    It is sent once, beside what waits, and ends with 1 if the receiver did not take it.
    """
    from mesos_gpu.api.spec.cluster.hooks import WebhookTest

    came = app.client().call("POST", _path(name, "test"), WebhookTest, body={})
    if as_json:
        output.document(came)
    if not came["ok"]:
        raise MesosGpuError(
            f"webhook {name} did not take it: {came['error']}",
            remedy="see the receiver's log, and --webhook-to of the scheduler",
        )
    if not as_json:
        output.line(f"webhook {name} answered {came['status']} after {came['took_s']:.2f}s")


_DEAD: Final[Listing["DeadLetter", "DeadLetter"]] = Listing(
    columns=(
        Col("ID", lambda each: each["id"]),
        Col("EVENT", lambda each: each["event"]),
        Col("KIND", lambda each: each["kind"]),
        Col("TRIES", lambda each: each["tries"]),
        Col(
            "GIVEN_UP", lambda each: output.short_stamp(each["given_up_at"]), lambda each: each["given_up_at"]
        ),
        Col("ERROR", lambda each: each["error"]),
    ),
    id=lambda each: str(each["id"]),
    rows=lambda each: (each,),
    filters={},
    fit=Fit(cut=("ERROR",), leave=("EVENT", "TRIES")),
)


@click.command()
@click.argument("name", type=NAME)
@list_options(_DEAD)
@api_command
def dead(app: App, name: str, asked: "Asked[DeadLetter, DeadLetter]") -> None:
    """List what could not be sent and was given up.

    The latest 1,000 are kept. `webhook retry` takes their IDs.
    """
    from mesos_gpu.api.spec.cluster.hooks import DeadLetters

    client = app.client()

    def look() -> "Seen[DeadLetter]":
        letters = client.call("GET", _path(name, "dead"), DeadLetters)
        return Seen(letters["dead"], "Nothing was given up.", lambda dead: {"dead": dead})

    show_list(asked, look)


@click.command()
@click.argument("name", type=NAME)
@click.argument("ids", metavar="[ID]...", nargs=-1, type=click.IntRange(1))
@json_option
@api_command
def retry(app: App, name: str, ids: tuple[int, ...], as_json: bool) -> None:
    """Try what was given up again.

    All of it, or the dead letters with these IDs.
    """
    from mesos_gpu.api.spec.cluster.hooks import Retried

    came = app.client().call("POST", _path(name, "retry"), Retried, body={"ids": list(ids)})
    if as_json:
        output.document(came)
    else:
        output.line(f"{came['retried']} are tried again")


_VERSIONS: Final[Listing["WebhookVersion", "WebhookVersion"]] = Listing(
    columns=(
        Col("VERSION", lambda each: each["version"]),
        Col("AT", lambda each: output.stamp(each["at"]), lambda each: each["at"]),
        Col("BY", lambda each: each["by"]),
        Col("WHAT", lambda each: each["what"]),
        Col("WEBHOOKS", lambda each: " ".join(each["webhooks"])),
    ),
    id=lambda each: str(each["version"]),
    rows=lambda each: (each,),
    filters={By.USER: lambda each: (each["by"],)},
    fit=Fit(cut=("WEBHOOKS", "WHAT"), leave=("WEBHOOKS", "BY")),
)


@click.command()
@list_options(_VERSIONS)
@api_command
def versions(app: App, asked: "Asked[WebhookVersion, WebhookVersion]") -> None:
    """List the changes of webhooks, the latest first."""
    from mesos_gpu.api.spec.cluster.hooks import WebhookVersions

    client = app.client()
    empty = "No such change." if asked.filtered else "There has been no webhook yet."

    def look() -> "Seen[WebhookVersion]":
        known = client.call("GET", "/v1/webhook-versions", WebhookVersions)
        return Seen(known["versions"], empty, lambda versions: {"versions": versions})

    show_list(asked, look)


def _path(*parts: str) -> str:
    return "/".join(("/v1/webhooks", *(quote(part, safe="") for part in parts)))
