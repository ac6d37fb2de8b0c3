"""`mesos-gpu token`: what proves a name to the scheduler, for programs."""

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
        "create": ("mesos_gpu.cli.access.token", "Make a token, and print it this once."),
        "list": ("mesos_gpu.cli.access.token:list_tokens", "List tokens, the newest first."),
        "revoke": ("mesos_gpu.cli.access.token", "Let tokens prove nothing any more."),
    }


@click.group(cls=_Tokens)
def token() -> None:
    """Tokens: what proves a name to the scheduler, for programs.

    A token is good for no more than who makes it may do, for less where it says so, and for a time.
    """


def _calls(app: App) -> "TokenCalls":
    from mesos_gpu.cli.access.calls import TokenCalls

    return TokenCalls(app.client())


@click.command()
@click.option("--name", help="Whom it shall prove; default: who makes it. Another name is for admins.")
@click.option(
    "--group", "groups", multiple=True, help="Group of the token; default: all groups of its maker."
)
@click.option(
    "--right", "rights", multiple=True, help="Right of the token, as job:run or job:*; default: all rights."
)
@click.option("--queue", "queues", multiple=True, help="Queue or pattern that it is good for; default: all.")
@click.option(
    "--app", "apps", multiple=True, metavar="PATH", help="App or pattern, as /shop/*; default: all."
)
@click.option("--expires", type=DURATION, help="Lifetime; default: 30 days, or the longest that is allowed.")
@click.option("--comment", default="", help="Purpose, for people.")
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
    """Make a token, and print it this once.

    The token alone is on stdout, for a file or a variable. The scheduler keeps a hash of it: nobody can show it again.

    \b
      mesos-gpu token create --name ann --expires 7d
      mesos-gpu token create --right job:run --queue research --comment CI > token
    """
    asked = {"groups": list(groups), "rights": list(rights), "queues": list(queues), "apps": list(apps)}
    request = {"name": name, **asked, "lifetime_s": expires, "comment": comment}
    made = _calls(app).create({key: each for key, each in request.items() if each})
    if as_json:
        output.document(made)
        return
    click.echo(made["secret"])
    shown = made["token"]
    until = output.stamp(shown["expires_at"])
    output.note(f"token {shown['id']} proves {shown['name']} until {until}; it is not shown again")
    for warning in made["warnings"]:
        output.note(warning)


def _good_for(token: "Token") -> str:
    """What it is narrowed to."""
    parts = [" ".join(token["rights"])]
    parts += [f"queues {' '.join(token['queues'])}"] if token["queues"] != ["*"] else []
    parts += [f"apps {' '.join(token['apps'])}"] if token["apps"] != ["/*"] else []
    return "; ".join(parts)


_TOKENS: Final[Listing["Token", "Token"]] = Listing(
    columns=(
        Col("ID", lambda each: each["id"]),
        Col("NAME", lambda each: each["name"]),
        Col("GROUPS", lambda each: " ".join(each["groups"]), wide=True),
        Col(
            "EXPIRES",
            lambda each: output.expected(each["expires_at"]).replace("now", "expired"),
            lambda each: each["expires_at"],
            moves=True,
        ),
        aged("USED", lambda each: each["used_at"]),
        Col("FROM", lambda each: each["used_from"]),
        aged("AGE", lambda each: each["created_at"], wide=True),
        Col("BY", lambda each: each["created_by"], wide=True),
        Col("GOOD FOR", _good_for),
        Col("COMMENT", lambda each: each["comment"]),
    ),
    id=lambda each: each["id"],
    rows=lambda each: (each,),
    filters={By.NAME: lambda each: (each["name"],)},
    fit=Fit(cut=("COMMENT", "GOOD FOR", "NAME"), leave=("FROM", "USED", "COMMENT", "GOOD FOR")),
)


@click.command("list")
@list_options(_TOKENS)
@api_command
def list_tokens(app: App, asked: "Asked[Token, Token]") -> None:
    """List tokens, the newest first.

    Those that one may see: one's own, and all of them for admins.
    """
    calls = _calls(app)
    empty = "No such token." if asked.filtered else "There is no token; make one with: mesos-gpu token create"
    show(asked, lambda: Seen(calls.all(), empty, lambda tokens: {"tokens": tokens}))


@click.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=TOKEN)
@yes_option
@json_option
@api_command
def revoke(app: App, ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Let tokens prove nothing any more.

    Tokens that were made with one of them end with it.
    """
    output.ask(f"Revoke {', '.join(ids)}, and the tokens that were made with them?", yes=yes)
    calls = _calls(app)
    revoked = []
    for token_id in ids:
        revoked.append(calls.revoke(token_id))
        if not as_json:
            output.line(f"{token_id} of {revoked[-1]['name']} is revoked")
    if as_json:
        output.document({"tokens": revoked})
