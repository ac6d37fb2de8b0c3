"""Parsers of option values, as click types and callbacks."""

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
MAX_LEVELS: Final = 8  # of the topology
ROLE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")  # a Mesos role that is not nested
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)


class NumberRange(click.FloatRange):
    """A finite number within bounds: Python parses `nan` and `inf`, and each comparison with `nan` is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, and refuse infinity and NaN."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def queue_limits(_ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """Parse --queue NAME=MAX_GPUS, each queue once."""
    limits: dict[str, int] = {}
    for text in given:
        name, _, most = text.partition("=")
        if not NAME.fullmatch(name) or not most.isascii() or not most.isdigit():
            raise click.BadParameter(f"{text!r} is not NAME=MAX_GPUS, for example research=8")
        if name in limits:
            raise click.BadParameter(f"queue {name} has two limits; give it one")
        limits[name] = int(most)
    return limits


def role_of(ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Parse --mesos-role-of QUEUE=ROLE, each queue and role once; only top-level queues, as Mesos roles stay flat."""
    roles: dict[str, str] = {}
    for text in given:
        queue, _, role = text.partition("=")
        if "/" in queue:
            raise click.BadParameter(
                f"{text!r}: {queue} is not a top-level queue; use {queue.partition('/')[0]}"
            )
        if "/" in role:
            raise click.BadParameter(
                f"{text!r}: role {role} is nested, and Mesos has no quota for nested roles; "
                f"use a flat one, for example {role.replace('/', '-').strip('-') or 'research'}"
            )
        if not NAME.fullmatch(queue) or not ROLE.fullmatch(role):
            raise click.BadParameter(f"{text!r} is not QUEUE=ROLE, for example research=gpu-research")
        if queue in roles:
            raise click.BadParameter(f"queue {queue} has two roles; give it one")
        if role in roles.values() or role == ctx.params.get("role"):
            raise click.BadParameter(
                f"{text!r}: role {role} is already used by another queue or --role; give the queue its own"
            )
        roles[queue] = role
    return roles


def overcommit(_ctx: click.Context, _param: click.Parameter, text: str) -> float:
    """Parse a number from 1 to 100."""
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", text, re.ASCII) or not 1 <= float(text) <= 100:
        raise click.BadParameter(
            f"{text!r} is not a number from 1 to 100 with at most 3 decimals, for example 1.5"
        )
    return float(text)


def placement_of(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, Placement]:
    """Parse --placement-of APP=POLICY, each app once."""
    known = {choice.value: choice for choice in Placement}
    placements: dict[str, Placement] = {}
    for text in given:
        app, _, policy = text.partition("=")
        if not NAME.fullmatch(app) or policy not in known:
            raise click.BadParameter(
                f"{text!r} is not APP=POLICY, for example web=spread; POLICY is one of {', '.join(known)}"
            )
        if app in placements:
            raise click.BadParameter(f"app {app} has two placements; give it one")
        placements[app] = known[policy]
    return placements


def levels(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[str, ...]:
    """Parse the topology levels: names of attributes, outermost first, without the node itself."""
    names = tuple(text.split(",")) if text else ()
    for name in names:
        if not LEVEL.fullmatch(name):
            raise click.BadParameter(f"{name!r} in {text!r} is not {LEVEL_FORM}")
        if names.count(name) > 1:
            raise click.BadParameter(f"{text!r} contains {name} twice; give each level once")
    if len(names) > MAX_LEVELS:
        raise click.BadParameter(f"{text!r} has {len(names)} levels; give at most {MAX_LEVELS}")
    if HOST in names[:-1]:
        raise click.BadParameter(f"{text!r}: {HOST} is the node itself; put it last, or leave it out")
    return names[:-1] if HOST in names else names


def service_ports(_ctx: click.Context, _param: click.Parameter, text: str) -> range:
    """Parse a range of ports, FIRST-LAST."""
    first, _, last = text.partition("-")
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise click.BadParameter(f"{text!r} is not FIRST-LAST, for example 10000-20000")
    if not 1 <= int(first) <= int(last) <= 65535:
        raise click.BadParameter(f"{text!r}: ports must be from 1 to 65535, the first not above the last")
    return range(int(first), int(last) + 1)


def user_pool(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    """Check a range of uids, FIRST-LAST, and return its text."""
    try:
        parse_pool(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return text


def control_access(
    _ctx: click.Context, _param: click.Parameter, given: tuple[str, ...]
) -> dict[str, tuple[Control, ...]]:
    """Parse --control-access NAME=LIST or NAME@USER=LIST, each name once."""
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
            form = (
                f"NAME=LIST or NAME@USER=LIST, for example /lb@haproxy=api; LIST contains {','.join(known)}"
            )
            raise click.BadParameter(f"{text!r} is not {form}")
        if who in controls:
            raise click.BadParameter(f"{who} is given twice; give it one list")
        controls[who] = tuple(dict.fromkeys(known[word] for word in words))
    return controls


def users(_ctx: click.Context, _param: click.Parameter, text: str) -> Users:
    """Parse a list of user names and ranges of uids."""
    try:
        return Users.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def own_user() -> str:
    """Return the name of the user that runs this process."""
    return pwd.getpwuid(os.geteuid()).pw_name


def archive(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    """Check the location of the executor archive: an absolute path on the agents, or a URI with a digest."""
    if text is None or is_place(text):
        return text
    raise click.BadParameter(
        f"{text!r} is neither an absolute path on the agents nor a URI (https, http, file) that ends in "
        "#sha256= and 64 hexadecimal digits, which sha256sum prints"
    )
