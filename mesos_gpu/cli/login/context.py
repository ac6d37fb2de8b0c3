"""`mesos-gpu context`: schedulers by names of one's own."""

import os
from pathlib import Path
from typing import Any, ClassVar, Final

import click
import msgspec

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, json_option, url_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.lists.columns import Col, Listing
from mesos_gpu.cli.lists.options import Asked, list_options
from mesos_gpu.cli.lists.seen import Seen
from mesos_gpu.cli.lists.show import show as show_list
from mesos_gpu.cli.locate import running
from mesos_gpu.cli.reach import contexts as kept
from mesos_gpu.cli.reach import logins, private
from mesos_gpu.cli.reach.contexts import Context, Contexts
from mesos_gpu.cli.reach.origins import origin_of
from mesos_gpu.cli.reach.reach import CONTEXT, Choice
from mesos_gpu.cli.table import Table
from mesos_gpu.errors import Conflict
from mesos_gpu.wire.listing.filters import By

_MODULE: Final = "mesos_gpu.cli.login.context"
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Table(Table):
    table: ClassVar = {
        "list": (f"{_MODULE}:list_contexts", "List contexts; the current one is marked."),
        "use": (_MODULE, "Talk to this scheduler where nothing else is said."),
        "add": (_MODULE, "Give a scheduler a name."),
        "remove": (_MODULE, "Forget a context and its login."),
        "show": (_MODULE, "Show which scheduler commands talk to, and why."),
    }


@click.group(cls=_Table)
def context() -> None:
    """Schedulers by names of one's own.

    A context has a scheduler's address, whom to believe there, and a login of its own. --context NAME or
    MESOS_GPU_CONTEXT uses one for a command; `context use` for all that follow.
    """


def _name(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not kept.NAME.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not a name of letters, digits, dots, dashes and underscores")
    return text


_NAME: Final = click.argument("name", callback=_name, shell_complete=lambda *_: sorted(kept.load().contexts))


_CONTEXTS: Final[Listing[dict[str, Any], dict[str, Any]]] = Listing(
    columns=(
        Col("CURRENT", lambda each: "*" if each["current"] else None),
        Col("NAME", lambda each: each["name"]),
        Col("URL", lambda each: each["url"]),
        Col("LOGIN", lambda each: each["login"]),
    ),
    id=lambda each: each["name"],
    rows=lambda each: (each,),
    filters={By.NAME: lambda each: (each["name"],)},
    fit=Fit(cut=("URL", "LOGIN"), leave=("LOGIN",)),
)


@click.command("list")
@list_options(_CONTEXTS)
def list_contexts(asked: "Asked[dict[str, Any], dict[str, Any]]") -> None:
    """List contexts; the current one is marked."""
    empty = (
        "No such context." if asked.filtered else "no contexts; add one: mesos-gpu context add NAME --url URL"
    )
    show_list(asked, lambda: Seen(_contexts(), empty, lambda each: {"contexts": each}))


def _contexts() -> list[dict[str, Any]]:
    known, each = kept.load(), logins.load()
    return [
        {"name": name, "url": one.url, "current": name == known.current, "login": _login(name, one, each)}
        for name, one in sorted(known.contexts.items())
    ]


def _login(name: str, one: Context, each: dict[str, logins.Login]) -> str | None:
    origin = origin_of(one.url.partition(",")[0])
    for key in (logins.key_of(name, origin), origin):
        login = each.get(key)
        if login is not None and login.origin == origin:
            return login.name or "a token"
    return None


@click.command()
@_NAME
def use(name: str) -> None:
    """Talk to this scheduler where nothing else is said."""
    with private.locked():
        known = kept.load()
        known.find(name)
        kept.save(msgspec.structs.replace(known, current=name))
    output.note(f"commands talk to {known.contexts[name].url} now")


@click.command()
@_NAME
@url_option
@click.option("--cacert", type=_FILE, help="PEM file of the authorities that its certificate may come from.")
@click.option("--cert", type=_FILE, help="PEM file of the certificate to show.")
@click.option("--key", type=_FILE, help="PEM file of the key of --cert, if it is not in there.")
@click.option("--insecure-http-token", is_flag=True, help="Send it a token in the clear.")
@click.option("--use", "now", is_flag=True, help="And use it from now on.")
@click.option("--force", is_flag=True, help="In place of the one that has this name.")
@click.pass_obj
def add(app: App, /, name: str, now: bool, force: bool, **files: Any) -> None:
    """Give a scheduler a name.

    --url says where it is. The first context becomes the current one.

    \b
      mesos-gpu context add prod --url https://gpu.example.com:8080 --use
    """
    if not app.url:
        raise click.UsageError("say where it is: --url URL")
    insecure = files.pop("insecure_http_token")
    paths = {key: str(path.absolute()) for key, path in files.items() if path}
    with private.locked():
        known = kept.load()
        if name in known.contexts and not force:
            raise Conflict(f"there is a context {name}", remedy="give --force to replace it, or another name")
        each = {**known.contexts, name: Context(app.url, insecure_http_token=insecure, **paths)}
        current = name if now or not known.contexts else known.current
        kept.save(Contexts(current, each))
    output.note(f"{name} is {app.url}" + (", and the current context" if current == name else ""))


@click.command()
@_NAME
def remove(name: str) -> None:
    """Forget a context and its login."""
    with private.locked():
        known = kept.load()
        known.find(name)
        each = {key: one for key, one in known.contexts.items() if key != name}
        current = "" if known.current == name else known.current
        kept.save(Contexts(current, each))
        logins.drop(logins.key_of(name, ""))
    left = "; no context is the current one now (mesos-gpu context use NAME)" if each and not current else ""
    output.note(f"{name} and its login are forgotten{left}")


@click.command()
@json_option
@click.pass_obj
def show(app: App, as_json: bool) -> None:
    """Show which scheduler commands talk to, and why."""
    reach = app.reach(shows=False)
    login = logins.find(reach.context, reach.origin)
    facts = {
        "context": reach.context or None,
        "url": reach.url,
        "by": _said_by(app.choice, reach.context),
        "cacert": _text(reach.cacert),
        "cert": _text(reach.cert),
        "key": _text(reach.key),
        "login": (login[1].name or "a token") if login else None,
        "until": login[1].until if login else None,
    }
    if as_json:
        output.document(facts)
        return
    until = output.stamp(login[1].until) if login else None
    output.pairs(list({**facts, "until": until}.items()))


def _said_by(choice: Choice, context: str) -> str:
    """What says where the scheduler is, for people. `context`: the one that it is of; "": of none."""
    if context:
        variable = f"{CONTEXT}={context}" if os.environ.get(CONTEXT) else "the current context"
        return "--context" if choice.context else variable
    if choice.url or os.environ.get("MESOS_GPU_URL"):
        return "--url" if choice.url else "MESOS_GPU_URL"
    return "the running `mesos-gpu up`" if running() else "the service of this host"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
