"""Options of the commands that change apps, and reports of their deployments."""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.app import api_command, json_option
from mesos_gpu.cli.types import DURATION
from mesos_gpu.model.words import counted

if TYPE_CHECKING:
    from mesos_gpu.cli.marathon import Marathon, Preview

_PATIENCE_S: Final = 600.0
_LOSSES: Final = 5  # deletions and reductions that the question before a change lists; the rest is counted


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Options of how to make and report a change. `timeout_s` counts from `began_at` (`time.monotonic()`)."""

    force: bool
    wait: bool
    timeout_s: float
    as_json: bool
    began_at: float = field(default_factory=time.monotonic)

    def tell(
        self, marathon: "Marathon", what: str, change: Mapping[str, Any] | None, *, undoes: bool = False
    ) -> None:
        """Report the deployment of a change, and wait for its end with --wait.

        Args:
            marathon: Interface that the change was requested from.
            what: Name of the changed apps, such as "/shop/web".
            change: Answer to the request; None if no deployment began.
            undoes: Whether the deployment undoes another one.

        Raises:
            TimedOut, Conflict: See `follow`.
        """
        from mesos_gpu.cli.apps.rolling import find, follow

        id = change["deploymentId"] if change else None
        if id is None or (begun := find(marathon, id)) is None:
            self._line(f"{what}: done, no deployment is needed")
            return
        self._line(f"{what}: deployment {id}")
        if self.wait:
            deadline = self.began_at + self.timeout_s
            follow(
                marathon,
                begun,
                deadline=deadline,
                timeout_s=self.timeout_s,
                to_stderr=self.as_json,
                undoes=undoes,
            )
            self._line(f"{what}: done")

    def _line(self, text: str) -> None:
        if not self.as_json:
            output.line(text)


def losses_question(preview: "Preview") -> str:
    """Return a question whether a change may delete apps or end instances; "" if it does neither."""
    losses = []
    for difference in preview["changes"]:
        before, after = difference["before"], difference["after"]
        had = before["instances"] if before else 0
        if after is None:
            losses.append(f"delete {difference['id']} and its {counted(had, 'instance')}")
        elif after["instances"] < had:
            fewer = counted(had - after["instances"], "instance")
            losses.append(f"end {fewer} of {difference['id']}, which then has {after['instances']}")
    text = "; ".join(losses[:_LOSSES]) + (f"; and {len(losses) - _LOSSES} more" if losses[_LOSSES:] else "")
    return f"{text[:1].upper()}{text[1:]}?" if text else ""


def change_command(function: Callable[..., None]) -> Callable[..., None]:
    """Add --force, --wait, --timeout, --json and --url to a command, and pass `ChangeOptions` second."""

    @functools.wraps(function)
    def command(app: Any, force: bool, wait: bool, timeout: float | None, as_json: bool, **rest: Any) -> None:
        if timeout is not None and not wait:
            raise click.UsageError("--timeout needs --wait")
        function(
            app, ChangeOptions(force, wait, _PATIENCE_S if timeout is None else timeout, as_json), **rest
        )

    options = (
        click.option(
            "--force", is_flag=True, help="Abort other deployments of these apps, which stay half done."
        ),
        click.option(
            "--wait", is_flag=True, help="Wait until the deployment is done, and show its progress."
        ),
        click.option(
            "--timeout",
            type=DURATION,
            help="With --wait: give up after this time (default: 10m) with the reason and exit code 124; the "
            "deployment "
            "continues.",
        ),
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return api_command(command)
