"""`mesos-gpu login` and `logout`."""

import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.adapters.files.private import read_secret
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command
from mesos_gpu.cli.reach import logins, private
from mesos_gpu.cli.reach.logins import Issued, Login, NotLoggedIn
from mesos_gpu.cli.reach.reach import Reach, check_secrecy
from mesos_gpu.errors import MesosGpuError

if TYPE_CHECKING:
    from mesos_gpu.api.spec.ways import LoginWays, OidcClient

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_MAX_TOKEN: Final = 1 << 16  # characters


@click.command()
@click.option("--with-token", is_flag=True, help="Store a token read from stdin, or typed.")
@click.option("--token-file", type=_FILE, help="Store the token of a file.")
@click.option(
    "--password", is_flag=True, help="Ask for name and password, and store a token created with them."
)
@click.option(
    "--issuer-cacert",
    type=_FILE,
    help="PEM file of the authorities trusted for the issuer's certificate; default: those of this host.",
)
@api_command
def login(
    app: App, with_token: bool, token_file: Path | None, password: bool, issuer_cacert: Path | None
) -> None:
    """Log in to the scheduler, for the commands that follow.

    With an OpenID Connect issuer, open a page in any browser and type a code. The login is stored in a file that only
    you can read, is renewed automatically, and is sent only to this scheduler. `mesos-gpu logout` ends it.
    """
    if with_token + password + (token_file is not None) > 1:
        raise click.UsageError("give one of --with-token, --token-file and --password")
    reach = app.reach(shows=False)
    check_secrecy(reach)
    if with_token or token_file:
        text = read_secret(token_file, "token") if token_file else _typed()
        _keep(reach, Login(reach.origin, _line(text)))
        return
    ways = _call(reach, "GET", "/v1/login", dict)
    if not ways["proofs"]:
        output.note(f"the scheduler at {reach.url} runs without authentication: no login is needed")
        return
    if reach.socket is not None and "socket" in ways["proofs"] and not password:
        output.note(f"{reach.url} is a Unix socket, which identifies your account: no login is needed")
        return
    if ways["oidc"] and not password:
        _keep(reach, _at_issuer(reach, ways["oidc"], issuer_cacert))
    elif "password" in ways["proofs"]:
        _keep(reach, _by_password(reach))
    else:
        raise _no_way(reach, ways)


def _no_way(reach: Reach, ways: "LoginWays") -> NotLoggedIn:
    error = NotLoggedIn(
        f"the scheduler at {reach.url} has no issuer and accepts no passwords, only: {', '.join(ways['proofs'])}"
    )
    error.remedy = (
        "log in with a token: mesos-gpu login --with-token <FILE; ask a user with that right to create one: "
        "mesos-gpu token create"
    )
    return error


def _typed() -> str:
    """Return the contents of stdin; on a terminal one line, which is not shown."""
    if sys.stdin.isatty():
        return str(click.prompt("Token", hide_input=True, err=True))
    return sys.stdin.read(_MAX_TOKEN)


def _line(text: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise click.UsageError("no valid token was given: a single line is expected")
    return token


def _call(reach: Reach, verb: str, path: str, kind: type[Any], **more: Any) -> Any:
    from mesos_gpu.cli.client import Client

    password = more.pop("password", None)
    with Client(reach, password=password) as client:
        return client.call(verb, path, kind, **more)


def _keep(reach: Reach, login: Login) -> None:
    """Store a login after checking it with the scheduler, in place of the former one."""
    who = _call(replace(reach, token=login.token), "GET", "/v1/whoami", dict)
    if not who["name"]:
        raise NotLoggedIn(f"the scheduler at {reach.url} does not accept these credentials")
    until = login.until if login.issued else who["until"]
    login_kept = Login(login.origin, login.token, who["name"], until, login.token_id, login.issued)
    key = logins.key_of(reach.context, login.origin)
    with private.locked():
        before = logins.load().get(key)
        logins.keep(key, login_kept)
    if before and before.token != login_kept.token and before.origin == login_kept.origin:
        _end(replace(reach, token=login_kept.token), before)
    output.note(f"logged in to {reach.url} as {who['name']}")


def _by_password(reach: Reach) -> Login:
    from mesos_gpu.cli.client import Refused

    name = click.prompt("Name", err=True)
    secret = click.prompt("Password", hide_input=True, err=True)
    body = {"comment": f"mesos-gpu login on {socket.gethostname()}"[:200]}
    try:
        created = _call(reach, "POST", "/v1/tokens", dict, body=body, password=(name, secret))
    except Refused as error:
        if error.http_status == 401:
            error.remedy = "check name and password, then try again"
        raise
    return Login(reach.origin, created["secret"], token_id=created["token"]["id"])


def _at_issuer(reach: Reach, client: "OidcClient", cacert: Path | None) -> Login:
    from mesos_gpu.adapters.oidc.discovery import discover
    from mesos_gpu.adapters.oidc.fetching import Fetcher, check_url
    from mesos_gpu.cli.login.device import by_device

    fetcher = Fetcher(cacert)
    at = discover(check_url(client["issuer"], "the scheduler's issuer"), fetcher)
    granted = by_device(at, client["client_id"], client["scopes"], fetcher)
    named = str(cacert.absolute()) if cacert else ""
    issued = Issued(client["issuer"], client["client_id"], client["token"], cacert=named)
    return logins.of_issuer(reach.origin, issued, granted)


@click.command()
@api_command
def logout(app: App) -> None:
    """Log out: remove the login, and revoke its token.

    A token created by the login is revoked; at an issuer, the login is ended if the issuer supports that.
    """
    reach = app.reach(shows=False)
    with private.locked():
        entry = logins.find(reach.context, reach.origin)
        if entry:
            logins.drop(entry[0])
    if not entry:
        output.note(f"you are not logged in to {reach.url}")
        return
    _end(replace(reach, token=entry[1].token), entry[1])
    goes_on = not (entry[1].token_id or entry[1].issued)
    more = "; its token is still valid: revoke it with mesos-gpu token revoke" if goes_on else ""
    output.note(f"logged out of {reach.url}{more}")


def _end(reach: Reach, login: Login) -> None:
    """End a removed login at its source; note on stderr if that fails."""
    try:
        if login.token_id:
            _call(reach, "DELETE", f"/v1/tokens/{login.token_id}", dict)
        elif login.issued and login.issued.refresh_token:
            _end_at_issuer(login.issued)
    except MesosGpuError as error:
        output.note(f"the former login was removed here, but stays valid until it expires: {error.what}")


def _end_at_issuer(issued: Issued) -> None:
    from mesos_gpu.adapters.oidc.discovery import discover
    from mesos_gpu.adapters.oidc.fetching import Fetcher
    from mesos_gpu.adapters.oidc.grants import revoke

    fetcher = Fetcher(Path(issued.cacert) if issued.cacert else None)
    revoke(discover(issued.issuer, fetcher), issued.client_id, issued.refresh_token, fetcher)
