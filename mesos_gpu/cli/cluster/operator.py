"""What the commands of operators share."""

import getpass
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

from mesos_gpu.cli import output
from mesos_gpu.cli.types import DEADLINE

if TYPE_CHECKING:
    from mesos_gpu.api.spec.shapes import Drain

T = TypeVar("T")
reason_option: Final = click.option("--reason", required=True, help="Why, for those who come to look.")
deadline_option: Final = click.option(
    "--deadline",
    type=DEADLINE,
    help="Time until what still runs there is ended, as 90s, 30m or 2h; 0: at once.",
)


def user() -> str:
    """Who runs this command; empty: this system has no name for him."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


def ends_question(names: Sequence[str], deadline_s: float) -> str:
    """Ask whether what runs at the places of a drain may be ended after `deadline_s`."""
    when = f"in {output.span(deadline_s)}" if deadline_s else "now"
    return f"End what runs on {', '.join(names)} {when}? It starts elsewhere."


def sentence(drain: "Drain | None", *, of_gpu: bool = True) -> str:
    """A drain in words that follow a name."""
    if drain is None:
        return "is not drained"
    whole = "with its node " if of_gpu and drain["target"] == "node" else ""
    by = f" by {drain['by']}" if drain["by"] else ""
    limit = (
        "" if drain["deadline_at"] is None else f", until {output.stamp(drain['deadline_at'])} for what runs"
    )
    return f"is drained {whole}since {output.stamp(drain['since'])}{by}: {drain['reason']}{limit}"


def given_back(left: "Drain | None", *, of_gpu: bool = True) -> str:
    """What an end of a drain came to, in words that follow a name; `left` is a drain that still holds."""
    return "is given back: new work may start there" if left is None else sentence(left, of_gpu=of_gpu)


def told(name: str, changed: Sequence[T]) -> Sequence[T]:
    """What came back for a name; if nothing, it is done all the same, and a note says so."""
    if not changed:
        output.note(f"{name} is away: nothing is known of it but its drain")
    return changed
