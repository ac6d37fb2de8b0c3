"""Options of webhooks: permitted receivers."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click

from mesos_gpu.adapters.hooks.receivers import Receivers, receivers
from mesos_gpu.adapters.hooks.send import Sender
from mesos_gpu.adapters.hooks.store import HookStore, hooks_of
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.scheduler.options.section import Section


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Permitted receivers, and the authorities trusted for their certificates in addition to the host's."""

    webhook_to: Receivers = field(default_factory=Receivers)
    webhook_cacert: Path | None = None

    def store(self, state: Path) -> HookStore:
        """Return the webhooks of a scheduler with the state file `state`.

        Raises:
            Damaged: The file of webhooks cannot be read.
        """
        return HookStore(hooks_of(state))

    def sender(self) -> Sender:
        """Return the HTTP sender of webhook requests.

        Raises:
            BadConfiguration: The file of authorities cannot be used.
        """
        context = ssl.create_default_context()
        if self.webhook_cacert is not None:
            try:
                context.load_verify_locations(self.webhook_cacert)
            except OSError as error:
                raise BadConfiguration(
                    f"{self.webhook_cacert} cannot be read: {error.strerror or error}",
                    remedy="name a PEM file of certificates with --webhook-cacert",
                ) from error
        return Sender(self.webhook_to, context)


def _receivers(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> Receivers:
    try:
        return receivers(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


WEBHOOKS: Final = Section(
    WebhookOptions,
    (
        click.option(
            "--webhook-to",
            multiple=True,
            callback=_receivers,
            metavar="HOST[:PORT]",
            help="Permitted receiver of webhooks: a name (*.NAME for all below it), an address, or a network "
            "ADDRESS/BITS; "
            ":PORT for another port than 443, :* for any. Loopback and link-local addresses are permitted only as "
            "numbers. "
            "May be repeated; default: none.",
        ),
        click.option(
            "--webhook-cacert",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            metavar="FILE",
            help="PEM file of authorities trusted for receivers' certificates, in addition to those of this host.",
        ),
    ),
)
