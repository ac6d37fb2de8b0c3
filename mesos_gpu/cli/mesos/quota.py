"""`mesos-gpu mesos quota`: limits and weights of Mesos' roles, derived from the tree of queues."""

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
    "start frameworks that need another role with a role of their own, and let no other principal register with this "
    "role: register_frameworks in the file of the masters' --acls"
)
_ROLE_OF: Final = click.option(
    "--role-of",
    type=RoleOf(),
    multiple=True,
    metavar="QUEUE=ROLE",
    help="Role of a top-level queue, equal to the scheduler's --mesos-role-of; may be repeated.",
)
_OTHERS: Final = click.option(
    "--other",
    "others",
    multiple=True,
    metavar="ROLE",
    help="Role of other frameworks that must leave guaranteed GPUs free; may be repeated. Default: all roles "
    "with which other frameworks are subscribed.",
)


@dataclass(frozen=True, slots=True)
class Line:
    """A role's current and planned limit and weight."""

    now: Role
    wanted: "Wanted"
    strangers: int = 0  # other frameworks that are subscribed with a queues' role

    @property
    def limit_now(self) -> float | None:
        """Current limit in GPUs; None without a limit."""
        return self.now.limits.get(GPUS)

    @property
    def relimited(self) -> bool:
        """Whether the limit changes."""
        return self.limit_now != self.wanted.limit_gpus

    @property
    def reweighted(self) -> bool:
        """Whether the weight changes."""
        return self.wanted.weight not in (None, self.now.weight)

    @property
    def why(self) -> str:
        """Reason of the planned values, with the other frameworks that use the role."""
        more = f"; shared with {counted(self.strangers, 'other framework')}" if self.strangers else ""
        return self.wanted.why + more

    @property
    def over(self) -> bool:
        """Whether the role uses more than its planned limit."""
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
    """Show the limits and weights that roles should have, without changing anything.

    Roles of queues get the queues' limits and weights; roles of other frameworks get what is not guaranteed. Mesos
    counts GPUs of all models alike: if models have different costs, limits are those of the cheapest model.

    \b
      mesos-gpu mesos quota plan --master 10.0.0.2:5050
    """
    lines = _looked(app, Master(master, credentials), role_of, others)
    _tell(lines, as_json=as_json)


@quota.command()
@click.option(
    "--force", is_flag=True, help="Apply limits below a role's current use too; running tasks continue."
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
    """Set the limits and weights of `plan` for all roles, or for none.

    Limits of other resources and Mesos' own guarantees stay. Running tasks continue; a role above its limit gets no
    more GPUs.

    \b
      mesos-gpu mesos quota apply --master 10.0.0.2:5050 --mesos-credentials operator.json
    """
    client = Master(master, credentials)
    lines = _looked(app, client, role_of, others)
    changed = [line for line in lines if line.relimited or line.reweighted]
    if not as_json:
        _tell(lines, as_json=False)
    if over := [line.wanted.role for line in changed if line.relimited and line.over and not force]:
        raise Conflict(
            f"{', '.join(over)} uses more GPUs than its new limit",
            remedy="add --force to set the limit: running tasks continue, and the role gets no more GPUs until it "
            "uses fewer",
        )
    if changed:
        output.ask(f"Change {counted(len(changed), 'role')}?", yes=yes, shown=True)
    if configs := [with_limit(line.now, line.wanted.limit_gpus) for line in changed if line.relimited]:
        client.call(update_quota(configs, force=force))
    weights = {line.wanted.role: line.wanted.weight for line in changed if line.reweighted}
    if weights:
        client.call(update_weights({role: weight for role, weight in weights.items() if weight is not None}))
    if as_json:
        _tell(lines, as_json=True)
    else:
        output.line(f"Changed: {', '.join(line.wanted.role for line in changed) or 'nothing'}")


@quota.command()
@master_options
@json_option
def show(master: str, credentials: Path | None, as_json: bool) -> None:
    """Show limits, weights and use of all roles of the master."""
    roles = _roles(Master(master, credentials))
    if as_json:
        output.document({"roles": [asdict(role) for role in roles.values()]})
        return
    rows = [
        (role.name, role.used.get(GPUS, 0.0), role.limits.get(GPUS), role.guarantees.get(GPUS), role.weight,
         len(role.frameworks))
        for role in roles.values()
    ]  # fmt: skip
    headers = ("ROLE", "GPUS USED", "LIMIT", "GUARANTEE", "WEIGHT", "FRAMEWORKS")
    fit = Fit(cut=("ROLE",), leave=("FRAMEWORKS", "GUARANTEE"))
    output.table(headers, rows, empty="The master knows no roles.", fit=fit)


def findings(app: App, master: str, credentials: Path | None) -> Iterator[Finding]:
    """Yield findings of the doctor about role limits that contradict the tree of queues.

    Raises:
        MesosGpuError: The scheduler or the master does not answer.
    """
    for line in _looked(app, Master(master, credentials), (), ()):
        role, now, most = line.wanted.role, line.limit_now, line.wanted.limit_gpus
        if line.strangers:
            text = (
                f"role {role} of queues is also used by {counted(line.strangers, 'other framework')}: their GPUs "
                "count in "
                "its limit, and nothing keeps them from using the queues' GPUs"
            )
            yield Finding(CHECK, Level.WARN, text, _APART)
        if line.wanted.of_others and most is not None and (now is None or now > most):
            text = f"role {role} of other frameworks may use {now or 'all'} GPUs: {line.wanted.why}"
            yield Finding(
                CHECK,
                Level.WARN,
                text,
                "set limits with mesos-gpu mesos quota apply, or reserve a pool's agents with mesos-gpu mesos reserve",
            )
        elif not line.wanted.of_others and now is not None and (most is None or now < most):
            text = f"role {role} is limited to {now:g} GPUs, fewer than its queues may use: {line.wanted.why}"
            yield Finding(CHECK, Level.WARN, text, "correct the limits with: mesos-gpu mesos quota apply")


def _roles(master: Master) -> dict[str, Role]:
    return roles_of(master.get("/roles", "roles"))


def _looked(
    app: App, master: Master, pairs: tuple[tuple[str, str], ...], others: Sequence[str]
) -> list[Line]:
    """Return the current and planned values of all roles."""
    from mesos_gpu.policy.mesos.quota import in_all_hours, wanted
    from mesos_gpu.policy.times.hours import spans_of_year

    ours = shared(app.client())
    if ours.lost:
        hosts = ", ".join(sorted(ours.lost))
        output.note(
            f"{counted(sum(ours.lost.values()), 'GPU')} of lost nodes are included: {hosts}; if the nodes do not "
            "come back, "
            "repeat this when `mesos-gpu nodes` no longer lists them"
        )
    own = role_of_framework(master, ours.framework)
    if not pairs:
        pairs = tuple([(queue, role) for queue, role in own.items() if queue in ours.document.queues])
    role_of = checked_role_of(ours, pairs)
    subscribed = roles_of_framework(master, ours.framework)
    roles = _roles(master)
    role = next(
        (name for name in subscribed if name not in {*own.values(), *role_of.values()}), subscribed[0]
    )
    strangers = others or [
        name
        for name, role_now in roles.items()
        if {*role_now.frameworks} - {ours.framework} and name not in subscribed
    ]
    documents = [ours.document, *(document for _, document in spans_of_year(ours.document, time()))]
    planned_roles = in_all_hours(
        [wanted(document, ours.models, role, role_of, strangers) for document in documents], strangers
    )
    lines = []
    for planned in planned_roles:
        now = roles.get(planned.role, Role(planned.role))
        more = 0 if planned.of_others else len({*now.frameworks} - {ours.framework})
        lines.append(Line(now, planned, more))
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
    output.table(_HEADERS, rows, empty="The master has no roles.", fit=_FIT)


def _changed(now: float | None, then: float | None) -> str:
    """Return the current value, and the planned one if it differs."""
    words = ["none" if value is None else f"{value:g}" for value in (now, then)]
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
