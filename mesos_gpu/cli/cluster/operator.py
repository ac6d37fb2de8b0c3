"""Options and texts shared by operators' commands."""

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.types import DEADLINE

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Drain

T = TypeVar("T")
reason_option: Final = click.option(
    "--reason", required=True, help="Reason of the drain or reset, shown to other operators."
)
deadline_option: Final = click.option(
    "--deadline",
    type=DEADLINE,
    help="Time after which jobs that still run there are ended, such as 90s, 30m or 2h; 0: at once.",
)


def user() -> str:
    """Return the user who runs this command; "" if the system has no name for the uid."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def ends_question(names: Sequence[str], deadline_s: float) -> str:
    """Return the question whether jobs on drained GPUs or nodes may be ended after `deadline_s`."""
    when = f"in {output.span(deadline_s)}" if deadline_s else "now"
    return f"End the jobs on {', '.join(names)} {when}? They restart elsewhere."


def sentence(drain: "Drain | None", *, of_gpu: bool = True) -> str:
    """Return a description of a drain, to follow a name."""
    if drain is None:
        return "is not drained"
    whole = "with its node " if of_gpu and drain["target"] == "node" else ""
    by = f" by {drain['by']}" if drain["by"] else ""
    limit = (
        "" if drain["deadline_at"] is None else f", running jobs end at {output.stamp(drain['deadline_at'])}"
    )
    return f"is drained {whole}since {output.stamp(drain['since'])}{by}: {drain['reason']}{limit}"


def given_back(left: "Drain | None", *, of_gpu: bool = True) -> str:
    """Return a description of the end of a drain, to follow a name; `left` is another drain that still holds."""
    return "is no longer drained: new work may start there" if left is None else sentence(left, of_gpu=of_gpu)


def told(name: str, changed: Sequence[T]) -> Sequence[T]:
    """Return `changed`; if it is empty, note that the change applies although the host is not connected."""
    if not changed:
        output.note(f"{name} is not connected: the drain was changed, nothing else is known of it")
    return changed
