"""`mesos-gpu token`: tokens, which are credentials for programs."""

from typing import TYPE_CHECKING, ClassVar, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing, aged
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show
from mesos_gpu.cli.table import Table
from mesos_gpu.cli.types import DURATION, Ref
from mesos_gpu.wire.listing.filters import By

if TYPE_CHECKING:
    from mesos_gpu.api.spec.access import Token
    from mesos_gpu.cli.access.calls import TokenCalls
    from mesos_gpu.cli.client import Client


def _ids(client: "Client") -> list[str]:
    from mesos_gpu.cli.access.calls import TokenCalls

    return [token["id"] for token in TokenCalls(client).all()]


TOKEN: Final = Ref("id", r"[0-9a-f]{1,64}", "the id of a token, as `mesos-gpu token list` shows it", _ids)


class _Tokens(Table):
    table: ClassVar = {
        "create": ("mesos_gpu.cli.access.token", "Create a token and print it, once only."),
        "list": ("mesos_gpu.cli.access.token:list_tokens", "List tokens, newest first."),
        "revoke": ("mesos_gpu.cli.access.token", "Revoke tokens."),
    }


@click.group(cls=_Tokens)
def token() -> None:
    """Tokens: credentials for programs.

    A token has at most the rights of its creator, optionally fewer, and expires.
    """


def _calls(app: App) -> "TokenCalls":
    from mesos_gpu.cli.access.calls import TokenCalls

    return TokenCalls(app.client())


@click.command()
@click.option("--name", help="User that the token stands for; default: you. Another user needs admin rights.")
@click.option("--group", "groups", multiple=True, help="Group of the token; default: all your groups.")
@click.option(
    "--right",
    "rights",
    multiple=True,
    help="Right of the token, such as job:run or job:*; default: all your rights.",
)
@click.option(
    "--queue", "queues", multiple=True, help="Queue or pattern that the token is valid for; default: all."
)
@click.option(
    "--app",
    "apps",
    multiple=True,
    metavar="PATH",
    help="App or pattern that the token is valid for, such as /shop/*; default: all.",
)
@click.option("--expires", type=DURATION, help="Lifetime; default: 30 days, or the longest allowed time.")
@click.option("--comment", default="", help="Description of its purpose.")
@json_option
@api_command
def create(
    app: App,
    name: str | None,
    groups: tuple[str, ...],
    rights: tuple[str, ...],
    queues: tuple[str, ...],
    apps: tuple[str, ...],
    expires: float | None,
    comment: str,
    as_json: bool,
) -> None:
    """Create a token and print it, once only.

    Only the token is printed on stdout, for a file or a variable. The scheduler stores a hash: it cannot be shown
    again.

    \b
      mesos-gpu token create --name ann --expires 7d
      mesos-gpu token create --right job:run --queue research --comment CI > token
    """
    scope = {"groups": list(groups), "rights": list(rights), "queues": list(queues), "apps": list(apps)}
    request = {"name": name, **scope, "lifetime_s": expires, "comment": comment}
    made = _calls(app).create({key: value for key, value in request.items() if value})
    if as_json:
        output.document(made)
        return
    click.echo(made["secret"])
    shown = made["token"]
    until = output.stamp(shown["expires_at"])
    output.note(f"token {shown['id']} for {shown['name']} is valid until {until}; it is not shown again")
    for warning in made["warnings"]:
        output.note(warning)


def _good_for(token: "Token") -> str:
    """Return the token's restrictions."""
    parts = [" ".join(token["rights"])]
    parts += [f"queues {' '.join(token['queues'])}"] if token["queues"] != ["*"] else []
    parts += [f"apps {' '.join(token['apps'])}"] if token["apps"] != ["/*"] else []
    return "; ".join(parts)


_TOKENS: Final[Listing["Token", "Token"]] = Listing(
    columns=(
        Col("ID", lambda record: record["id"]),
        Col("NAME", lambda record: record["name"]),
        Col("GROUPS", lambda record: " ".join(record["groups"]), wide=True),
        Col(
            "EXPIRES",
            lambda record: output.expected(record["expires_at"]).replace("now", "expired"),
            lambda record: record["expires_at"],
            moves=True,
        ),
        aged("USED", lambda record: record["used_at"]),
        Col("FROM", lambda record: record["used_from"]),
        aged("AGE", lambda record: record["created_at"], wide=True),
        Col("BY", lambda record: record["created_by"], wide=True),
        Col("GOOD FOR", _good_for),
        Col("COMMENT", lambda record: record["comment"]),
    ),
    id=lambda record: record["id"],
    rows=lambda record: (record,),
    filters={By.NAME: lambda record: (record["name"],)},
    fit=Fit(cut=("COMMENT", "GOOD FOR", "NAME"), leave=("FROM", "USED", "COMMENT", "GOOD FOR")),
)


@click.command("list")
@list_options(_TOKENS)
@api_command
def list_tokens(app: App, asked: "Asked[Token, Token]") -> None:
    """List tokens, newest first.

    You see your own tokens; admins see all.
    """
    calls = _calls(app)
    empty = "No such token." if asked.filtered else "No token; create one with: mesos-gpu token create"
    show(asked, lambda: Seen(calls.all(), empty, lambda tokens: {"tokens": tokens}))


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=TOKEN)
@yes_option
@json_option
@api_command
def revoke(app: App, ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Revoke tokens.

    Tokens that were created with one of them are revoked too.
    """
    output.ask(f"Revoke {', '.join(ids)}, and the tokens that were created with them?", yes=yes)
    calls = _calls(app)
    revoked = []
    for token_id in ids:
        revoked.append(calls.revoke(token_id))
        if not as_json:
            output.line(f"{token_id} of {revoked[-1]['name']} was revoked")
    if as_json:
        output.document({"tokens": revoked})
