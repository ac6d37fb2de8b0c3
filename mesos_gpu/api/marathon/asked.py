"""Parts of a request to Marathon's interface: its path, its query, its body."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from mesos_gpu.api.http.requests import MAX_APPS, read_of
from mesos_gpu.api.marathon.errors import refused
from mesos_gpu.wire.body import MAX_APP_VALUES
from mesos_gpu.wire.marathon.app import json_of
from mesos_gpu.wire.marathon.paths import ROOT, absolute, steps_of
from mesos_gpu.wire.marathon.problems import Problems

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """The parts of a path: of "shop/db/tasks/shop_db.1" the id "/shop/db", the verb "tasks" and the item."""

    id: str
    verb: str = ""
    item: str = ""


def place_of(path: str, verbs: Mapping[str, bool], *, of_root: bool = False) -> Place:
    """Parse a path. Repeated slashes do not matter: clients send "//shop/db".

    Args:
        path: Path after the collection's name.
        verbs: Words that may end it, and whether an item may follow each.
        of_root: Whether the path may consist of such words only, which then apply to the root group.
    """
    steps, least = steps_of(path), 0 if of_root else 1
    if len(steps) > least + 1 and verbs.get(steps[-2]):
        return Place(_id(steps[:-2]), steps[-2], steps[-1])
    if len(steps) > least and steps[-1] in verbs:
        return Place(_id(steps[:-1]), steps[-1])
    if steps == ["*"]:
        return Place(ROOT, "*")
    return Place(_id(steps))


def _id(steps: list[str]) -> str:
    return absolute(ROOT + "/".join(steps))


def flag(request: Request, name: str, *, default: bool = False) -> bool:
    """Return a Boolean query parameter; clients write "True" as well as "true"."""
    text = request.query_params.get(name)
    return default if text is None else text.strip().lower() == "true"


def embeds(request: Request, *prefixes: str) -> frozenset[str]:
    """Return the values of `embed`, each without its prefix: "tasks" for "apps.tasks"."""
    values = set()
    for value in request.query_params.getlist("embed"):
        prefix = next((candidate for candidate in prefixes if value.startswith(candidate)), "")
        values.add(value[len(prefix) :])
    return frozenset(values)


async def json_body(request: Request) -> Any:
    """Return the JSON of a body with apps or groups.

    Raises:
        Refused: The body is not JSON.
    """
    value = await read_of(request, _apps_of, MAX_APPS)
    if isinstance(value, Problems):
        raise refused(value)
    return value


def _apps_of(body: bytes) -> Any:
    return json_of(body, MAX_APP_VALUES)


async def json_read(request: Request, read: Callable[[Any], T]) -> T:
    """Apply a function to the JSON of the body, and return its result.

    Raises:
        Refused: The body is not JSON.
    """

    def whole(body: bytes) -> T:
        value = json_of(body)
        if isinstance(value, Problems):
            raise refused(value)
        return read(value)

    return await read_of(request, whole)
