"""`mesos-gpu mesos quota`: what the tree of queues comes to in limits and weights of Mesos' roles."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from isolator.node.findings import Finding, Level
from isolator.node.mesos_roles import CHECK
from mesos_gpu.cli import output
from mesos_gpu.cli.app import App, api_command, json_option, yes_option
from mesos_gpu.cli.fit import Fit
from mesos_gpu.cli.mesos.master import Master, master_options
from mesos_gpu.cli.mesos.tree import RoleOf, checked_role_of, role_of_framework, roles_of_framework, shared
from mesos_gpu.errors import Conflict
from mesos_gpu.model.nodes.role import GPUS, Role
from mesos_gpu.model.words import counted
from mesos_gpu.wire.mesos.operator.quotas import (
    roles_of,
    update_quota,
    update_weights,
    with_limit,
)

if TYPE_CHECKING:
    from mesos_gpu.policy.mesos.quota import Wanted

_F = TypeVar("_F", bound=Callable[..., Any])
_HEADERS: Final = ("ROLE", "USED", "LIMIT", "WEIGHT", "WHY")
_FIT: Final = Fit(cut=("ROLE", "WHY"), leave=(), wrap=True)
_APART: Final = (
    "start those with a role of their own, and let no other principal register with this one: register_frameworks in "
    "the file of masters' --acls"
)
_ROLE_OF: Final = click.option(
    "--role-of",
    type=RoleOf(),
    multiple=True,
    metavar="QUEUE=ROLE",
    help="Role of a top queue's own, as the scheduler's --mesos-role-of; may be repeated.",
)
_OTHERS: Final = click.option(
    "--other",
    "others",
    multiple=True,
    metavar="ROLE",
    help="Role of other frameworks that must leave what queues are guaranteed; may be repeated. Default: each role "
    "that another framework is subscribed with.",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A role as it is, and as it should be."""

    now: Role
    wanted: "Wanted"
    strangers: int = 0  # frameworks of others that are subscribed with a role of queues

    @property
    def limit_now(self) -> float | None:
        """GPUs; None: it has none."""
        return self.now.limits.get(GPUS)

    @property
    def relimited(self) -> bool:
        """Whether its limit changes."""
        return self.limit_now != self.wanted.limit_gpus

    @property
    def reweighted(self) -> bool:
        """Whether its weight changes."""
        return self.wanted.weight not in (None, self.now.weight)

    @property
    def why(self) -> str:
        """What its figures follow from, and who else uses them up."""
        more = f"; shared with {counted(self.strangers, 'other framework')}" if self.strangers else ""
        return self.wanted.why + more

    @property
    def over(self) -> bool:
        """Whether it has more than it should."""
        most = self.wanted.limit_gpus
        return most is not None and self.now.used.get(GPUS, 0.0) > most


@click.group()
def quota() -> None:
    """Limits and weights of Mesos' roles, derived from the tree of queues."""


def _asks_both(function: _F) -> _F:
    return master_options(_ROLE_OF(_OTHERS(json_option(api_command(function)))))


@quota.command()
@_asks_both
def plan(
    app: App,
    master: str,
    credentials: Path | None,
    role_of: tuple[tuple[str, str], ...],
    others: tuple[str, ...],
    as_json: bool,
) -> None:
    """Say which limits and weights roles should have; nothing is changed.

    Roles of queues have the queues' limits and weights; roles of other frameworks have what is not guaranteed. Mesos
    counts GPUs of each model alike: where models cost differently, limits are those of the cheapest.

    \b
      mesos-gpu mesos quota plan --master 10.0.0.2:5050
    """
    lines = _looked(app, Master(master, credentials), role_of, others)
    _tell(lines, as_json=as_json)


@quota.command()
@click.option(
    "--force", is_flag=True, help="Also where a role has more than its limit now; nothing of it ends."
)
@yes_option
@_asks_both
def apply(
    app: App,
    master: str,
    credentials: Path | None,
    role_of: tuple[tuple[str, str], ...],
    others: tuple[str, ...],
    as_json: bool,
    force: bool,
    yes: bool,
) -> None:
    """Let roles have the limits and weights that `plan` says: all of them, or none.

    Limits of other resources, and guarantees of Mesos' own, stay as they are. What runs goes on; a role that has more
    than its limit gets no more.

    \b
      mesos-gpu mesos quota apply --master 10.0.0.2:5050 --mesos-credentials operator.json
    """
    asked = Master(master, credentials)
    lines = _looked(app, asked, role_of, others)
    changed = [line for line in lines if line.relimited or line.reweighted]
    if not as_json:
        _tell(lines, as_json=False)
    if over := [line.wanted.role for line in changed if line.relimited and line.over and not force]:
        raise Conflict(
            f"{', '.join(over)} has more GPUs than its limit would be",
            remedy="--force sets it all the same: nothing ends, and the role gets no more until it has less",
        )
    if changed:
        output.ask(f"Change {counted(len(changed), 'role')}?", yes=yes, shown=True)
    if configs := [with_limit(line.now, line.wanted.limit_gpus) for line in changed if line.relimited]:
        asked.call(update_quota(configs, force=force))
    weights = {line.wanted.role: line.wanted.weight for line in changed if line.reweighted}
    if weights:
        asked.call(update_weights({role: weight for role, weight in weights.items() if weight is not None}))
    if as_json:
        _tell(lines, as_json=True)
    else:
        output.line(f"Changed: {', '.join(line.wanted.role for line in changed) or 'nothing'}")


@quota.command()
@master_options
@json_option
def show(master: str, credentials: Path | None, as_json: bool) -> None:
    """Show limits, weights and use of all roles that the master knows."""
    roles = _roles(Master(master, credentials))
    if as_json:
        output.document({"roles": [asdict(role) for role in roles.values()]})
        return
    rows = [
        (each.name, each.used.get(GPUS, 0.0), each.limits.get(GPUS), each.guarantees.get(GPUS), each.weight,
         len(each.frameworks))
        for each in roles.values()
    ]  # fmt: skip
    headers = ("ROLE", "GPUS USED", "LIMIT", "GUARANTEE", "WEIGHT", "FRAMEWORKS")
    fit = Fit(cut=("ROLE",), leave=("FRAMEWORKS", "GUARANTEE"))
    output.table(headers, rows, empty="The master knows no roles.", fit=fit)


def findings(app: App, master: str, credentials: Path | None) -> Iterator[Finding]:
    """What the doctor says of limits beside the tree.

    Raises:
        MesosGpuError: The scheduler or the master does not say it.
    """
    for line in _looked(app, Master(master, credentials), (), ()):
        role, now, most = line.wanted.role, line.limit_now, line.wanted.limit_gpus
        if line.strangers:
            text = (
                f"role {role} of queues has {counted(line.strangers, 'other framework')}: what those take counts in "
                "its limit, and nothing keeps queues' GPUs from them"
            )
            yield Finding(CHECK, Level.WARN, text, _APART)
        if line.wanted.of_others and most is not None and (now is None or now > most):
            text = f"role {role} of others may have {now or 'all'} GPUs: {line.wanted.why}"
            yield Finding(CHECK, Level.WARN, text, "mesos-gpu mesos quota plan, or reserve a pool's agents")
        elif not line.wanted.of_others and now is not None and (most is None or now < most):
            text = f"role {role} is limited to {now:g} GPUs, less than queues may have: {line.wanted.why}"
            yield Finding(CHECK, Level.WARN, text, "mesos-gpu mesos quota apply")


def _roles(master: Master) -> dict[str, Role]:
    return roles_of(master.get("/roles", "roles"))


def _looked(
    app: App, master: Master, pairs: tuple[tuple[str, str], ...], others: Sequence[str]
) -> list[Line]:
    """Roles as they are and should be."""
    from mesos_gpu.policy.mesos.quota import in_all_hours, wanted
    from mesos_gpu.policy.times.hours import spans_of_year

    ours = shared(app.client())
    if ours.lost:
        hosts = ", ".join(sorted(ours.lost))
        output.note(
            f"{counted(sum(ours.lost.values()), 'GPU')} of lost nodes are counted: {hosts}; if they do not come back, "
            "run this again when `mesos-gpu nodes` lists them no more"
        )
    own = role_of_framework(master, ours.framework)
    if not pairs:
        pairs = tuple([(queue, role) for queue, role in own.items() if queue in ours.document.queues])
    role_of = checked_role_of(ours, pairs)
    subscribed = roles_of_framework(master, ours.framework)
    known = _roles(master)
    role = next(
        (each for each in subscribed if each not in {*own.values(), *role_of.values()}), subscribed[0]
    )
    strangers = others or [
        name
        for name, each in known.items()
        if {*each.frameworks} - {ours.framework} and name not in subscribed
    ]
    documents = [ours.document, *(each for _, each in spans_of_year(ours.document, time()))]
    made = in_all_hours(
        [wanted(each, ours.models, role, role_of, strangers) for each in documents], strangers
    )
    lines = []
    for each in made:
        now = known.get(each.role, Role(each.role))
        more = 0 if each.of_others else len({*now.frameworks} - {ours.framework})
        lines.append(Line(now, each, more))
    return lines


def _tell(lines: Sequence[Line], *, as_json: bool) -> None:
    if as_json:
        output.document({"roles": [_document(line) for line in lines]})
        return
    rows = [
        (line.wanted.role, line.now.used.get(GPUS, 0.0), _changed(line.limit_now, line.wanted.limit_gpus),
         _changed(line.now.weight, line.wanted.weight if line.reweighted else line.now.weight), line.why)
        for line in lines
    ]  # fmt: skip
    output.table(_HEADERS, rows, empty="There are no roles.", fit=_FIT)


def _changed(now: float | None, then: float | None) -> str:
    """What it is, and what it should be if that is something else."""
    words = ["none" if each is None else f"{each:g}" for each in (now, then)]
    return words[0] if now == then else " -> ".join(words)


def _document(line: Line) -> Mapping[str, object]:
    return {
        **asdict(line.wanted),
        "used_gpus": line.now.used.get(GPUS, 0.0),
        "limit_now_gpus": line.limit_now,
        "weight_now": line.now.weight,
        "changes": line.relimited or line.reweighted,
        "other_frameworks": line.strangers,
    }
