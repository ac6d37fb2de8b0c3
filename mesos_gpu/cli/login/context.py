"""`mesos-gpu context`: named schedulers."""

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
        "use": (_MODULE, "Make a context the current one, for all later commands."),
        "add": (_MODULE, "Add a context for a scheduler."),
        "remove": (_MODULE, "Remove a context and its login."),
        "show": (_MODULE, "Show which scheduler commands use, and why."),
    }


@click.group(cls=_Table)
def context() -> None:
    """Contexts: named schedulers.

    A context has a scheduler's address, its trusted authorities and a login. --context NAME or MESOS_GPU_CONTEXT
    selects one for a single command; `context use` for all later commands.
    """


def _name(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if not kept.NAME.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not a name of letters, digits, dots, dashes and underscores")
    return text


_NAME: Final = click.argument("name", callback=_name, shell_complete=lambda *_: sorted(kept.load().contexts))


_CONTEXTS: Final[Listing[dict[str, Any], dict[str, Any]]] = Listing(
    columns=(
        Col("CURRENT", lambda entry: "*" if entry["current"] else None),
        Col("NAME", lambda entry: entry["name"]),
        Col("URL", lambda entry: entry["url"]),
        Col("LOGIN", lambda entry: entry["login"]),
    ),
    id=lambda entry: entry["name"],
    rows=lambda entry: (entry,),
    filters={By.NAME: lambda entry: (entry["name"],)},
    fit=Fit(cut=("URL", "LOGIN"), leave=("LOGIN",)),
)


@click.command("list")
@list_options(_CONTEXTS)
def list_contexts(asked: "Asked[dict[str, Any], dict[str, Any]]") -> None:
    """List contexts; the current one is marked."""
    empty = (
        "No such context."
        if asked.filtered
        else "No contexts; add one with: mesos-gpu context add NAME --url URL"
    )
    show_list(asked, lambda: Seen(_contexts(), empty, lambda each: {"contexts": each}))


def _contexts() -> list[dict[str, Any]]:
    contexts, logins_by_key = kept.load(), logins.load()
    return [
        {
            "name": name,
            "url": context_entry.url,
            "current": name == contexts.current,
            "login": _login(name, context_entry, logins_by_key),
        }
        for name, context_entry in sorted(contexts.contexts.items())
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
    """Make a context the current one, for all later commands."""
    with private.locked():
        contexts = kept.load()
        contexts.find(name)
        kept.save(msgspec.structs.replace(contexts, current=name))
    output.note(f"commands now use {contexts.contexts[name].url}")


@click.command()
@_NAME
@url_option
@click.option(
    "--cacert", type=_FILE, help="PEM file of the authorities trusted for the scheduler's certificate."
)
@click.option("--cert", type=_FILE, help="PEM file of the client certificate.")
@click.option("--key", type=_FILE, help="PEM file of the key of --cert, if it is in another file.")
@click.option("--insecure-http-token", is_flag=True, help="Send tokens unencrypted.")
@click.option("--use", "now", is_flag=True, help="Make it the current context.")
@click.option("--force", is_flag=True, help="Replace an existing context of this name.")
@click.pass_obj
def add(app: App, /, name: str, now: bool, force: bool, **files: Any) -> None:
    """Add a context for a scheduler.

    --url is required. The first context becomes the current one.

    \b
      mesos-gpu context add prod --url https://gpu.example.com:8080 --use
    """
    if not app.url:
        raise click.UsageError("give the scheduler's address with --url URL")
    insecure = files.pop("insecure_http_token")
    paths = {key: str(path.absolute()) for key, path in files.items() if path}
    with private.locked():
        contexts = kept.load()
        if name in contexts.contexts and not force:
            raise Conflict(
                f"context {name} exists already", remedy="replace it with --force, or choose another name"
            )
        updated = {**contexts.contexts, name: Context(app.url, insecure_http_token=insecure, **paths)}
        current = name if now or not contexts.contexts else contexts.current
        kept.save(Contexts(current, updated))
    output.note(f"{name} is {app.url}" + (", and the current context" if current == name else ""))


@click.command()
@_NAME
def remove(name: str) -> None:
    """Remove a context and its login."""
    with private.locked():
        contexts = kept.load()
        contexts.find(name)
        remaining = {key: entry for key, entry in contexts.contexts.items() if key != name}
        current = "" if contexts.current == name else contexts.current
        kept.save(Contexts(current, remaining))
        logins.drop(logins.key_of(name, ""))
    left = (
        "; there is no current context now: choose one with mesos-gpu context use NAME"
        if remaining and not current
        else ""
    )
    output.note(f"{name} and its login were removed{left}")


@click.command()
@json_option
@click.pass_obj
def show(app: App, as_json: bool) -> None:
    """Show which scheduler commands use, and why."""
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
    """Return the source of the scheduler's address; `context` is its context, "" for none."""
    if context:
        variable = f"{CONTEXT}={context}" if os.environ.get(CONTEXT) else "the current context"
        return "--context" if choice.context else variable
    if choice.url or os.environ.get("MESOS_GPU_URL"):
        return "--url" if choice.url else "MESOS_GPU_URL"
    return "the running `mesos-gpu up`" if running() else "the service of this host"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
