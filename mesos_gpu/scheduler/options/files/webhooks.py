"""Webhooks: whom they may be sent to."""

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
    """The receivers that there may be, and the authorities that their certificates may come from beside the host's."""

    webhook_to: Receivers = field(default_factory=Receivers)
    webhook_cacert: Path | None = None

    def store(self, state: Path) -> HookStore:
        """The webhooks of a scheduler with that state file.

        Raises:
            Damaged: Their file cannot be read.
        """
        return HookStore(hooks_of(state))

    def sender(self) -> Sender:
        """What sends to them.

        Raises:
            BadConfiguration: The file of authorities cannot be used.
        """
        context = ssl.create_default_context()
        if self.webhook_cacert is not None:
            try:
                context.load_verify_locations(self.webhook_cacert)
            except OSError as error:
                raise BadConfiguration(
                    f"{self.webhook_cacert} cannot be used: {error.strerror or error}",
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
            help="Receiver that webhooks may have: a name (*.NAME: those below it), an address or a network "
            "ADDRESS/BITS; :PORT for another port than 443, :* for any. Loopback and link-local addresses only by "
            "their numbers. More than once for several; default: none.",
        ),
        click.option(
            "--webhook-cacert",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            metavar="FILE",
            help="PEM file of authorities that receivers' certificates may come from, beside those of this host.",
        ),
    ),
)
