"""/v2/groups."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.answers import json_answer
from mesos_gpu.api.marathon import tree, views
from mesos_gpu.api.marathon.apps import refuse_clash
from mesos_gpu.api.marathon.asked import Place, embeds, flag, json_body
from mesos_gpu.api.marathon.core import Core, result
from mesos_gpu.api.marathon.errors import Refused, no_group, not_json, not_valid, refused
from mesos_gpu.api.service import View
from mesos_gpu.model.app import App, Group
from mesos_gpu.policy.rollout.plan import plan
from mesos_gpu.wire.marathon.group import GroupRollback, Scale, group_of
from mesos_gpu.wire.marathon.kinds import LARGEST_INTEGER
from mesos_gpu.wire.marathon.paths import absolute, steps_of
from mesos_gpu.wire.marathon.problems import Detail, Problems

_ALL: Final = frozenset({"apps", "groups"})  # embedded if nothing is asked for
_DEEPEST: Final = 64  # groups within groups
_NO_VERSIONS: Final = (
    "versions of groups are not kept; every app has versions of its own, at /v2/apps/{id}/versions"
)


class Groups:
    """The routes' functions."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def show(self, request: Request, place: Place) -> Response:
        """GET /v2/groups/{id}."""
        embed = embeds(request, "group.") or _ALL

        def read(view: View) -> tuple[Group, list[views.Facts]]:
            group = _there(view.root, place.id)
            return group, views.facts_of(view, group.all_apps(), failures="apps.lastTaskFailure" in embed)

        group, found = await self._core.read(read)
        facts = {each.app.id: each for each in found}
        return await run_in_threadpool(lambda: json_answer(views.group_json(group, facts, embed)))

    async def create(self, request: Request, place: Place) -> Response:
        """POST /v2/groups, or below a group."""
        value = await json_body(request)
        id = _effective(value, place.id)

        def target(root: Group) -> Group:
            if tree.app_at(root, id) is not None:
                raise Refused(409, f"An app with the path {id} already exists.")
            if tree.group_at(root, id) is not None:
                raise Refused(409, f"Group {id} is already created. Use PUT to change this group.")
            return self._changed(root, id, value)

        made = await self._core.change(target, force=flag(request, "force"))
        return result(made, 201, {"Location": f"/v2/groups{id}"})

    async def put(self, request: Request, place: Place) -> Response:
        """PUT /v2/groups/{id}: the group as it shall be; with dryRun=true the steps that would lead there."""
        value = await json_body(request)
        id = _effective(value, place.id)
        if flag(request, "dryRun"):
            root = await self._core.read(lambda view: view.root)
            steps = plan(root, self._changed(root, id, value)).steps
            return json_answer({"steps": views.steps_json(steps)})
        made = await self._core.change(
            lambda root: self._changed(root, id, value), force=flag(request, "force")
        )
        return result(made)

    async def delete(self, request: Request, place: Place) -> Response:
        """DELETE /v2/groups/{id}: with all that is below it."""

        def target(root: Group) -> Group:
            _there(root, place.id)
            return tree.without_group(root, place.id)

        return result(await self._core.change(target, force=flag(request, "force")))

    async def versions(self, _request: Request, _place: Place) -> Response:
        """/v2/groups/{id}/versions."""
        raise Refused(501, _NO_VERSIONS)

    def _changed(self, root: Group, id: str, value: Any) -> Group:
        meant = group_of(value, id_from_path=id, current=tree.group_at(root, id))
        if isinstance(meant, Problems):
            raise refused(meant)
        if isinstance(meant, GroupRollback):
            raise Refused(501, _NO_VERSIONS)
        if isinstance(meant, Scale):
            return tree.with_group(root, tree.map_apps(_there(root, id), partial(_scaled, by=meant.by)))
        self._core.check(_placed(meant, ""))
        root = tree.with_group(root, meant)
        refuse_clash(root, [id, *(app.id for app in meant.all_apps())])
        return root


def _there(root: Group, id: str) -> Group:
    group = tree.group_at(root, id)
    if group is None:
        raise no_group(id)
    return group


def _effective(value: object, place: str) -> str:
    """The group that is meant: the body's id, which may be relative to the path's, or the path's."""
    said = value.get("id") if isinstance(value, dict) else None
    if said is not None and not isinstance(said, str):
        raise not_json("error.expected.jsstring", at="/id")
    id = absolute(said or "", place)
    if len(steps_of(id)) > _DEEPEST:
        raise not_valid([Detail("/id", (f"groups may be {_DEEPEST} deep at most",))])
    return id


def _scaled(app: App, by: float) -> App:
    instances = app.instances * by
    if not instances <= LARGEST_INTEGER:
        raise not_valid([Detail("/scaleBy", (f"{app.id} would have more than {LARGEST_INTEGER} instances",))])
    return replace(app, instances=math.ceil(instances))


def _placed(group: Group, place: str) -> Iterator[tuple[str, App]]:
    """Every app with its place in the body."""
    for i, app in enumerate(group.apps):
        yield f"{place}/apps({i})", app
    for i, each in enumerate(group.groups):
        yield from _placed(each, f"{place}/groups({i})")
