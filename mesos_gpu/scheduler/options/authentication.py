"""Options of authentication at the REST interface."""

import ipaddress
import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from mesos_gpu.access import proofs
from mesos_gpu.access.name_maps import NameMap
from mesos_gpu.access.name_maps import parse as parse_map
from mesos_gpu.adapters.proofs.certificates import CertName
from mesos_gpu.adapters.proofs.proxies import USER_HEADER, Proxies
from mesos_gpu.api.login.who import ROUTES
from mesos_gpu.model.access.caller import Proof
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Section

_USER: Final = "user:"


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """Values of the options with the same names.

    Attributes:
        auth: Accepted proofs in order of use; None for those that other options set up, () for no authentication.
    """

    auth: tuple[Proof, ...] | None = None
    htpasswd: Path | None = None
    cert_name: str = CertName.COMMON_NAME.value
    cert_maps: tuple[NameMap, ...] = ()
    trusted_proxies: Proxies = field(default_factory=Proxies)
    proxy_user_header: str = USER_HEADER
    proxy_groups_header: str | None = None
    socket: Path | None = None
    open_routes: frozenset[str] = frozenset({"ping", "openapi"})


def _order(_ctx: click.Context, _param: click.Parameter, text: str | None) -> tuple[Proof, ...] | None:
    try:
        return None if text is None else proofs.order(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _maps(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> tuple[NameMap, ...]:
    try:
        return tuple(map(parse_map, given))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _proxies(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> Proxies:
    networks, users = [], []
    for text in given:
        try:
            if text.startswith(_USER):
                users.append(pwd.getpwnam(text.removeprefix(_USER)).pw_uid)
            else:
                networks.append(ipaddress.ip_network(text))
        except KeyError:
            raise click.BadParameter(f"{text!r}: no such user on this host") from None
        except ValueError as error:
            form = "an address, a network (10.0.0.5, 10.0.0.0/28) or user:NAME"
            raise click.BadParameter(f"{text!r} is not {form}") from error
    return Proxies(tuple(networks), tuple(users))


def _header(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None and not (text.isascii() and text.replace("-", "").isalnum()):
        raise click.BadParameter(f"{text!r} is not a valid header name")
    return text


def _routes(_ctx: click.Context, _param: click.Parameter, text: str) -> frozenset[str]:
    words = frozenset(word.strip() for word in text.split(",")) - {"none", ""}
    if not words <= ROUTES.keys():
        raise click.BadParameter(f"{text!r} is not a list of {', '.join(ROUTES)}, or none")
    return words


AUTHENTICATION: Final = Section(
    AuthenticationOptions,
    (
        click.option(
            "--auth",
            callback=_order,
            metavar="LIST",
            help="Accepted proofs of a user's name, in order of use: token, password, certificate, proxy, oidc, "
            "socket; or "
            "none for no authentication. Default: those that other options set up, with tokens and the socket; "
            "without any, no "
            "authentication.",
        ),
        click.option(
            "--htpasswd",
            type=parse.FILE,
            help="File of names and bcrypt hashes, written by `htpasswd -B -C 12`; changes take effect at once.",
        ),
        click.option(
            "--cert-name",
            type=click.Choice([choice.value for choice in CertName]),
            default=CertName.COMMON_NAME.value,
            show_default=True,
            help="Field of a client certificate that contains the user's name.",
        ),
        click.option(
            "--cert-map",
            "cert_maps",
            multiple=True,
            callback=_maps,
            metavar="PATTERN=NAME",
            help="Mapping of certificate names to users, for example *@example.org=*; all other names are then "
            "refused; may be repeated.",
        ),
        click.option(
            "--trusted-proxy",
            "trusted_proxies",
            multiple=True,
            callback=_proxies,
            metavar="ADDRESS",
            help="Address or network of proxies that are trusted to state the user's name and the client's address; "
            "user:NAME for a proxy on the Unix socket that runs as that user; may be repeated.",
        ),
        click.option(
            "--proxy-user-header",
            default=USER_HEADER,
            show_default=True,
            callback=_header,
            help="Header in which trusted proxies state the user's name.",
        ),
        click.option(
            "--proxy-groups-header",
            callback=_header,
            metavar="NAME",
            help="Header in which trusted proxies state the user's groups, separated by commas.",
        ),
        click.option(
            "--socket",
            type=parse.FILE,
            help="Unix socket on which users are identified by the kernel; default: run/api.sock beside --state.",
        ),
        click.option(
            "--open-routes",
            default="ping,openapi",
            show_default=True,
            callback=_routes,
            metavar="LIST",
            help="Routes that need no authentication: ping, openapi, metrics; or none.",
        ),
    ),
)
