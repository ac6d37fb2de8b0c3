"""`mesos-gpu whoami`: identity and rights of the caller."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option

if TYPE_CHECKING:
    from mesos_gpu.api.spec.sessions import WhoAmI

_PROOFS = {
    "socket": "the kernel of the scheduler's host",
    "token": "a token of the scheduler",
    "password": "a password",
    "oidc": "a token of an OpenID Connect issuer",
    "certificate": "a certificate",
    "proxy": "a trusted proxy",
}


@click.command()
@json_option
@api_command
def whoami(app: App, as_json: bool) -> None:
    """Show who you are to the scheduler, and what you may do."""
    from mesos_gpu.api.spec.sessions import WhoAmI

    who = app.client().call("GET", "/v1/whoami", WhoAmI)
    if as_json:
        output.document(who)
        return
    for line in _lines(who):
        output.line(line)
    for right in who["rights"] if who["name"] is not None else ():
        output.folded(f"  {right['name']:<16}", right["words"])


def _lines(who: "WhoAmI") -> Iterator[str]:
    """Yield the lines about identity, groups, roles and restrictions of the caller."""
    if who["name"] is None:
        is_open = who["proof"] == "open"
        yield "anonymous: this scheduler runs without authentication" if is_open else "not authenticated"
        if not is_open:
            yield f"accepted: {', '.join(who['proofs'])}; log in with mesos-gpu login, see its --help"
        return
    yield f"{who['name']}, by {_PROOFS.get(who['proof'], who['proof'])}"
    if who["until"] is not None:
        yield f"until {output.stamp(who['until'])}"
    for about, names in (("groups", who["groups"]), ("roles", who["roles"])):
        if names:
            yield f"{about}: {', '.join(names)}"
    if who["unix_user"]:
        yield f"jobs run as {who['unix_user']}"
    narrowing = who["narrowing"]
    if narrowing is not None and narrowing != {"rights": ["*"], "queues": ["*"], "apps": ["/*"]}:
        yield "this credential is restricted to:"
        for about, names in (
            ("rights", narrowing["rights"]),
            ("queues", narrowing["queues"]),
            ("apps", narrowing["apps"]),
        ):
            yield f"  {about}: {', '.join(names)}"
    yield (
        "may:"
        if who["rights"]
        else "no rights: no binding includes this user; ask an admin to bind a role to it (mesos-gpu access apply)"
    )
