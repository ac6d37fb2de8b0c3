"""Options of an OpenID Connect issuer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from mesos_gpu.access.claims import MAX_S, SKEW_S, NameClaim, Rules
from mesos_gpu.access.jws import ALGORITHMS
from mesos_gpu.adapters.files.private import read_secret
from mesos_gpu.adapters.oidc.client import SCOPES, Client, TokenKind
from mesos_gpu.adapters.oidc.fetching import Fetcher
from mesos_gpu.adapters.oidc.issuer import Issuer
from mesos_gpu.adapters.oidc.tokens import OidcTokens
from mesos_gpu.scheduler.options import parse
from mesos_gpu.scheduler.options.section import Section


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """Values of the options with the same names; without an issuer the others have no effect."""

    oidc_issuer: str | None = None
    oidc_client_id: str = "mesos-gpu"
    oidc_client_secret_file: Path | None = None
    oidc_cli_client_id: str | None = None
    oidc_audiences: tuple[str, ...] = ()
    oidc_authorized_parties: tuple[str, ...] = ()
    oidc_cacert: Path | None = None
    oidc_name_claim: str = NameClaim.USERNAME.value
    oidc_name_prefix: str = ""
    oidc_groups_claim: str = "groups"
    oidc_groups_prefix: str = ""
    oidc_required: Mapping[str, str] = field(default_factory=dict)
    oidc_algorithms: tuple[str, ...] = ALGORITHMS
    oidc_clock_skew_s: float = SKEW_S
    oidc_max_lifetime_s: float = MAX_S
    oidc_scopes: tuple[str, ...] = SCOPES
    oidc_cli_token: str = TokenKind.ID.value

    @property
    def client(self) -> Client:
        """This scheduler's registration at the issuer.

        Raises:
            BadConfiguration: The file of the client secret cannot be used.
        """
        secret = self.oidc_client_secret_file
        return Client(
            self.oidc_client_id,
            read_secret(secret, "client secret") if secret else "",
            self.oidc_cli_client_id or self.oidc_client_id,
            self.oidc_scopes,
            TokenKind(self.oidc_cli_token),
        )

    def prover(self) -> OidcTokens:
        """Return the verifier of the issuer's tokens.

        Raises:
            BadConfiguration: A file or an address cannot be used.
        """
        client, issuer = self.client, self.oidc_issuer or ""
        rules = Rules(
            issuer,
            frozenset(self.oidc_audiences or (client.id, client.cli_id)),
            frozenset((client.id, client.cli_id, *self.oidc_authorized_parties)),
            NameClaim(self.oidc_name_claim),
            self.oidc_name_prefix,
            self.oidc_groups_claim,
            self.oidc_groups_prefix,
            self.oidc_required,
            self.oidc_clock_skew_s,
            self.oidc_max_lifetime_s,
        )
        return OidcTokens(Issuer(issuer, Fetcher(self.oidc_cacert)), rules, client, self.oidc_algorithms)


def _required(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> Mapping[str, str]:
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE, for example hd=example.org")
        if name in values:
            raise click.BadParameter(f"claim {name} is given twice; give it one value")
        values[name] = value
    return values


def _scopes(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(text.replace(",", " ").split()))
    if "openid" not in words:
        raise click.BadParameter(
            f"{text!r} lacks openid, which is needed for tokens that contain the user's name"
        )
    return words


OIDC: Final = Section(
    OidcOptions,
    (
        click.option(
            "--oidc-issuer",
            metavar="URL",
            help="URL of the OpenID Connect issuer whose tokens are accepted, exactly as in its tokens.",
        ),
        click.option(
            "--oidc-client-id",
            default="mesos-gpu",
            show_default=True,
            metavar="ID",
            help="Client ID of this scheduler at the issuer.",
        ),
        click.option(
            "--oidc-client-secret-file",
            type=parse.FILE,
            help="File (mode 0600) with the client secret, for browser logins; default: a public client without "
            "secret.",
        ),
        click.option(
            "--oidc-cli-client-id",
            metavar="ID",
            help="Client ID of `mesos-gpu login`, a public client; default: --oidc-client-id.",
        ),
        click.option(
            "--oidc-audience",
            "oidc_audiences",
            multiple=True,
            metavar="NAME",
            help="Accepted audience of tokens; may be repeated; default: the client IDs.",
        ),
        click.option(
            "--oidc-authorized-party",
            "oidc_authorized_parties",
            multiple=True,
            metavar="ID",
            help="Client ID to which tokens may be issued (claim azp), besides this scheduler's; may be repeated.",
        ),
        click.option(
            "--oidc-cacert",
            type=parse.FILE,
            help="PEM file of authorities trusted for the issuer's certificate; default: those of this host.",
        ),
        click.option(
            "--oidc-name-claim",
            type=click.Choice([choice.value for choice in NameClaim]),
            default=NameClaim.USERNAME.value,
            show_default=True,
            help="Claim with the user's name; email is accepted only if the issuer has verified it.",
        ),
        click.option(
            "--oidc-name-prefix",
            default="",
            metavar="TEXT",
            help="Prefix for names from the issuer, to distinguish them from users of other proofs.",
        ),
        click.option(
            "--oidc-groups-claim",
            default="groups",
            show_default=True,
            metavar="NAME",
            help='Claim with the groups of the user; "" for no groups.',
        ),
        click.option(
            "--oidc-groups-prefix",
            default="",
            metavar="TEXT",
            help="Prefix for groups from the issuer.",
        ),
        click.option(
            "--oidc-require",
            "oidc_required",
            multiple=True,
            callback=_required,
            metavar="NAME=VALUE",
            help="Claim that each token must have, for example hd=example.org; may be repeated.",
        ),
        click.option(
            "--oidc-algorithm",
            "oidc_algorithms",
            multiple=True,
            type=click.Choice(ALGORITHMS),
            default=ALGORITHMS,
            help="Accepted signature algorithm; may be repeated; default: all with a public key.",
        ),
        click.option(
            "--oidc-clock-skew-s",
            default=int(SKEW_S),
            show_default=True,
            type=click.IntRange(0, 600),
            help="Largest accepted difference between the issuer's clock and this host's.",
        ),
        click.option(
            "--oidc-max-lifetime-s",
            default=int(MAX_S),
            show_default=True,
            type=click.IntRange(60, 30 * 86400),
            help="Longest accepted lifetime of a token.",
        ),
        click.option(
            "--oidc-scopes",
            default=" ".join(SCOPES),
            show_default=True,
            callback=_scopes,
            metavar="LIST",
            help="Scopes that logins request; offline_access lets `mesos-gpu login` renew tokens without a browser.",
        ),
        click.option(
            "--oidc-cli-token",
            type=click.Choice([choice.value for choice in TokenKind]),
            default=TokenKind.ID.value,
            show_default=True,
            help="Token that `mesos-gpu login` stores and sends.",
        ),
    ),
)
