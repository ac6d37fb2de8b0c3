"""Who asks: which proofs of a name the REST interface takes."""

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
    """What the options of the same names say.

    Attributes:
        auth: Proofs in their order; None: what is configured; (): nobody is asked.
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
            raise click.BadParameter(f"{text!r}: there is no such user on this host") from None
        except ValueError as error:
            form = "an address or a network, as 10.0.0.5 or 10.0.0.0/28, nor user:NAME"
            raise click.BadParameter(f"{text!r} is not {form}") from error
    return Proxies(tuple(networks), tuple(users))


def _header(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None and not (text.isascii() and text.replace("-", "").isalnum()):
        raise click.BadParameter(f"{text!r} is no name of a header")
    return text


def _routes(_ctx: click.Context, _param: click.Parameter, text: str) -> frozenset[str]:
    words = frozenset(word.strip() for word in text.split(",")) - {"none", ""}
    if not words <= ROUTES.keys():
        raise click.BadParameter(f"{text!r} is not a list of {', '.join(ROUTES)}, nor none")
    return words


AUTHENTICATION: Final = Section(
    AuthenticationOptions,
    (
        click.option(
            "--auth",
            callback=_order,
            metavar="LIST",
            help="Proofs of a name that are taken, in their order: token, password, certificate, proxy, oidc, socket. "
            "none: nobody is asked. Default: those that other options set up, and with them tokens and the socket; if "
            "there are none, nobody is asked.",
        ),
        click.option(
            "--htpasswd",
            type=parse.FILE,
            help="File of names and bcrypt hashes, as `htpasswd -B -C 12` writes it; changes are taken at once.",
        ),
        click.option(
            "--cert-name",
            type=click.Choice([each.value for each in CertName]),
            default=CertName.COMMON_NAME.value,
            show_default=True,
            help="Field of a client's certificate that has the name.",
        ),
        click.option(
            "--cert-map",
            "cert_maps",
            multiple=True,
            callback=_maps,
            metavar="PATTERN=NAME",
            help="Mapping of certificate names, as *@example.org=*; other names are refused then; may be repeated.",
        ),
        click.option(
            "--trusted-proxy",
            "trusted_proxies",
            multiple=True,
            callback=_proxies,
            metavar="ADDRESS",
            help="Address or network of proxies whose word for a name is taken, and where a request came from; "
            "user:NAME: on the Unix socket, as that user; may be repeated.",
        ),
        click.option(
            "--proxy-user-header",
            default=USER_HEADER,
            show_default=True,
            callback=_header,
            help="The header in which proxies say the name.",
        ),
        click.option(
            "--proxy-groups-header",
            callback=_header,
            metavar="NAME",
            help="The one with its groups, with commas between them.",
        ),
        click.option(
            "--socket",
            type=parse.FILE,
            help="Unix socket on which the kernel says who asks; default: run/api.sock beside --state.",
        ),
        click.option(
            "--open-routes",
            default="ping,openapi",
            show_default=True,
            callback=_routes,
            metavar="LIST",
            help="Routes that need no name: of ping, openapi, metrics; or none.",
        ),
    ),
)
