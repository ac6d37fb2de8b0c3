"""Texts of the command line as values."""

import math
import os
import pwd
import re
from pathlib import Path
from typing import Any, Final

import click

from mesos_gpu.model.jobs.constraint import HOST
from mesos_gpu.model.jobs.fields import LEVEL, LEVEL_FORM, NAME, USER
from mesos_gpu.model.jobs.job import Placement
from mesos_gpu.model.jobs.permits import Control
from mesos_gpu.model.jobs.users import Users
from mesos_gpu.model.nodes.user_pool import parse_pool
from mesos_gpu.scheduler.delivery.archive import is_place
from mesos_gpu.wire.marathon.paths import absolute, problem_of

FILE: Final = click.Path(path_type=Path, dir_okay=False)
MAX_LEVELS: Final = 8  # of the fabric
ROLE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")  # of Mesos, a flat one
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)


class NumberRange(click.FloatRange):
    """A number within bounds. Python reads `nan` and `inf` as numbers, and every comparison with the first is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse what is not finite, too."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def queue_limits(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """NAME=MAX_GPUS, each queue once."""
    limits: dict[str, int] = {}
    for text in given:
        name, _, most = text.partition("=")
        if not NAME.fullmatch(name) or not most.isascii() or not most.isdigit():
            raise click.BadParameter(f"{text!r} is not NAME=MAX_GPUS, as research=8")
        if name in limits:
            raise click.BadParameter(f"queue {name} has two limits")
        limits[name] = int(most)
    return limits


def role_of(ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """QUEUE=ROLE, each queue once and each role once; top queues, for what Mesos knows of them is one level."""
    roles: dict[str, str] = {}
    for text in given:
        queue, _, role = text.partition("=")
        if "/" in queue:
            raise click.BadParameter(f"{text!r}: {queue} is no top queue; name {queue.partition('/')[0]}")
        if "/" in role:
            raise click.BadParameter(
                f"{text!r}: the role {role} is nested, and Mesos has no quota for such ones; "
                f"name a flat one, as {role.replace('/', '-').strip('-') or 'research'}"
            )
        if not NAME.fullmatch(queue) or not ROLE.fullmatch(role):
            raise click.BadParameter(f"{text!r} is not QUEUE=ROLE, as research=gpu-research")
        if queue in roles:
            raise click.BadParameter(f"queue {queue} has two roles; give it one")
        if role in roles.values() or role == ctx.params.get("role"):
            raise click.BadParameter(
                f"{text!r}: the role {role} is another's already; give the queue its own"
            )
        roles[queue] = role
    return roles


def overcommit(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    """A number from 1 to 100."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", text, re.ASCII) or not 1 <= float(text) <= 100:
        raise click.BadParameter(f"{text!r} is not a number from 1 to 100 with 3 decimals at most, as 1.5")
    return float(text)


def placement_of(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, Placement]:
    """APP=POLICY, each app once."""
    known = {choice.value: choice for choice in Placement}
    placements: dict[str, Placement] = {}
    for text in given:
        app, _, policy = text.partition("=")
        if not NAME.fullmatch(app) or policy not in known:
            raise click.BadParameter(f"{text!r} is not APP=POLICY, as web=spread; POLICY: {', '.join(known)}")
        if app in placements:
            raise click.BadParameter(f"app {app} has two placements")
        placements[app] = known[policy]
    return placements


def levels(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    """Read the levels of the fabric: names of attributes, the outermost first, without the node itself."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        if not LEVEL.fullmatch(name):
            raise click.BadParameter(f"{name!r} in {text!r} is not {LEVEL_FORM}")
        if names.count(name) > 1:
            raise click.BadParameter(f"{text!r} names {name} twice; name each level once")
    if len(names) > MAX_LEVELS:
        raise click.BadParameter(f"{text!r} has {len(names)} levels; name {MAX_LEVELS} at most")
    if HOST in names[:-1]:
        raise click.BadParameter(f"{text!r}: {HOST} is the node itself; name it last, or leave it out")
    return names[:-1] if HOST in names else names


def service_ports(_ctx: click.Context, _param: click.Parameter, text: str) -> range:
    """FIRST-LAST."""
    first, _, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise click.BadParameter(f"{text!r} is not FIRST-LAST, as 10000-20000")
    if not 1 <= int(first) <= int(last) <= 65535:
        raise click.BadParameter(f"{text!r}: ports are from 1 to 65535, the first before the last")
    return range(int(first), int(last) + 1)


def user_pool(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    """FIRST-LAST, uids."""
    try:
        parse_pool(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def control_access(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, tuple[Control, ...]]:
    """NAME=LIST or NAME@USER=LIST, each name once."""
    known = {control.value: control for control in Control}
    controls: dict[str, tuple[Control, ...]] = {}
    for text in given:
        who, _, listed = text.partition("=")
        name, at, user = who.partition("@")
        words = listed.split(",")
        is_app = name != "/" and absolute(name) == name and not problem_of(name)
        if (
            not (is_app or NAME.fullmatch(name))
            or (at and not USER.fullmatch(user))
            or not known.keys() >= set(words)
        ):
            form = f"NAME=LIST or NAME@USER=LIST, as /lb@haproxy=api; LIST: of {','.join(known)}"
            raise click.BadParameter(f"{text!r} is not {form}")
        if who in controls:
            raise click.BadParameter(f"{who} is named twice; give one list")
        controls[who] = tuple(dict.fromkeys(known[word] for word in words))
    return controls


def users(_ctx: click.Context, _param: click.Parameter, text: str) -> Users:
    """A list of names and of ranges of uids."""
    try:
        return Users.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def own_user() -> str:
    """The user that this process runs as."""
    return pwd.getpwuid(os.geteuid()).pw_name


def archive(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    """Where executors' archive is: an absolute path on the agents, or a URI with a digest."""
    if text is None or is_place(text):
        return text
    raise click.BadParameter(
        f"{text!r} is neither an absolute path on the agents nor a URI (https, http, file) that ends in "
        "#sha256= and 64 hexadecimal digits, as sha256sum prints them"
    )
