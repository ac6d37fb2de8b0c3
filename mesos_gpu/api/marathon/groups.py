"""Routes of /v2/groups."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Self

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import json_answer, large_answer
from mesos_gpu.api.marathon import tree, views
from mesos_gpu.api.marathon.apps import refuse_clash
from mesos_gpu.api.marathon.asked import Place, embeds, flag, json_body
from mesos_gpu.api.marathon.core import AppChanges, result
from mesos_gpu.api.marathon.errors import Refused, no_group, not_json, not_valid, refused
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.engine.reading.apps import known_versions
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.catalog import GroupShape
from mesos_gpu.policy.apps.rollout.history import apps_of, restored, versions_of
from mesos_gpu.wire.marathon.group import ENFORCED_ROLE, GroupRollback, Scale, group_of, group_to_json
from mesos_gpu.wire.marathon.kinds import LARGEST_INTEGER
from mesos_gpu.wire.marathon.moments import stamp
from mesos_gpu.wire.marathon.paths import ROOT, absolute, problem_of, steps_of
from mesos_gpu.wire.marathon.problems import Detail, Problems, Report
from mesos_gpu.wire.marathon.rules import Allowed

_ALL: Final = frozenset({"apps", "groups"})  # embedded by default
_DEEPEST: Final = 64  # levels of nested groups


class Groups:
    """HTTP handlers of groups: reading, creating, changing, scaling and deleting them, and their earlier versions."""

    def __init__(self, core: AppChanges) -> None:
        self._core = core

    async def show(self, request: Request, place: Place) -> Response:
        """GET /v2/groups/{id}: a group with its apps and groups."""
        embed = embeds(request, "group.") or _ALL

        sight = AppSight.of(request)

        def read(view: View) -> tuple[Group, list[views.Facts], Mapping[str, float]]:
            whole = _seen(view.catalog.root, place.id, sight)
            failures = "apps.lastTaskFailure" in embed
            facts = views.facts_of(view, whole.all_apps(), sight, failures=failures)
            return sight.tree(whole), facts, view.catalog.group_versions

        group, facts_of_apps, versions = await self._core.read_copy(read)
        facts = {app_facts.app.id: app_facts for app_facts in facts_of_apps}
        return await large_answer(views.group_json(group, facts, versions, embed))

    async def create(self, request: Request, place: Place) -> Response:
        """POST /v2/groups, or POST /v2/groups/{id} with an id relative to that: create a group."""
        value = await json_body(request)
        id = _group_id(value, place.id)

        def target(root: Group) -> Group:
            # Faults and missing rights are reported before it is revealed whether the group exists.
            _refuse_unseen(
                root, id, _requested(value, id, None, self._core.allowed(root)), AppSight.of(request)
            )
            if tree.app_at(root, id) is not None:
                raise Refused(409, f"An app with the path {id} already exists.")
            if tree.group_at(root, id) is not None:
                raise Refused(409, f"Group {id} is already created. Use PUT to change this group.")
            return self._changed(root, id, value, None, AppSight.of(request))

        deployment = await self._core.change(request, target, force=flag(request, "force"))
        more = await self._core.warnings(request, deployment)
        return result(deployment, 201, {"Location": f"/v2/groups{id}"}, more=more)

    async def put(self, request: Request, place: Place) -> Response:
        """PUT /v2/groups/{id}: replace, scale or restore a group; with dryRun=true only return the steps."""
        value = await json_body(request)
        id = _group_id(value, place.id)
        back = isinstance(value, dict) and value.get("version") is not None
        sight = AppSight.of(request)
        past = await self._core.read(lambda view: _Past.seen(view, id, sight)) if back else None
        if flag(request, "dryRun"):
            preview = await self._core.preview(
                request, lambda root: self._changed(root, id, value, past, AppSight.of(request))
            )
            ours = () if "changes" in embeds(request) else ("changes", "warnings")
            return json_answer({key: item for key, item in preview.items() if key not in ours})
        deployment = await self._core.change(
            request,
            lambda root: self._changed(root, id, value, past, AppSight.of(request)),
            force=flag(request, "force"),
        )
        return result(deployment, more=await self._core.warnings(request, deployment))

    async def patch(self, request: Request, place: Place) -> Response:
        """PATCH /v2/groups/{id}: set whether the role of a top-level group is enforced. This makes no deployment."""
        value = await json_body(request)
        if len(steps_of(place.id)) != 1:
            raise not_valid([Detail("/id", (f"{place.id} is not top-level",))])
        report = Report()
        role = ENFORCED_ROLE.read(value, report)
        if (problems := report.problems()) is not None:
            raise refused(problems)

        def target(root: Group) -> Group:
            group = _seen(root, place.id, AppSight.of(request))
            return tree.with_group(root, replace(group, enforce_role=role.get("enforce_role", False)))

        deployment = await self._core.change(request, target, force=True)  # it touches no app
        more = await self._core.warnings(request, deployment)
        return result(deployment, more=more) if more else Response()

    async def delete(self, request: Request, place: Place) -> Response:
        """DELETE /v2/groups/{id}: delete a group with all that is below it."""

        def target(root: Group) -> Group:
            _seen(root, place.id, AppSight.of(request))
            return tree.without_group(root, place.id)

        return result(await self._core.change(request, target, force=flag(request, "force")))

    async def versions(self, request: Request, place: Place) -> Response:
        """GET /v2/groups/{id}/versions: the versions of a group, the latest one first."""
        sight = AppSight.of(request)
        past = await self._core.read(lambda view: _Past.seen(view, place.id, sight))
        return json_answer([stamp(version) for version in reversed(past.shapes)])

    async def version(self, request: Request, place: Place) -> Response:
        """GET /v2/groups/{id}/versions/{v}: a group as it was in a version."""
        sight = AppSight.of(request)
        past = await self._core.read(lambda view: _Past.seen(view, place.id, sight))
        return json_answer(group_to_json(sight.tree(past.at(place.item))) | {"version": place.item})

    def _changed(self, root: Group, id: str, value: Any, past: "_Past | None", sight: AppSight) -> Group:
        """Return the tree after a request to replace, scale or restore a group."""
        current = tree.group_at(root, id) if _is_seen(root, id, sight) else None
        request = _requested(value, id, current, self._core.allowed(root))
        if isinstance(request, GroupRollback):
            if past is None:
                raise Refused(409, "the group does not exist yet, so it has no earlier version")
            whole = past.at(request.version)
            for app in whole.all_apps():
                if app != tree.app_at(root, app.id):
                    sight.require_whole(app)
            return tree.with_group(root, whole)
        if isinstance(request, Scale):
            whole = _seen(root, id, sight)
            return tree.with_group(root, tree.map_apps(whole, partial(_scaled, by=request.by)))
        _refuse_unseen(root, id, request, sight)
        root = tree.with_group(root, request)
        refuse_clash(root, [id, *(app.id for app in request.all_apps())])
        return root


def _requested(value: Any, id: str, current: Group | None, allowed: Allowed) -> Group | Scale | GroupRollback:
    """Return the change of a group that a body describes.

    Raises:
        Refused: The body is not valid.
    """
    change = group_of(value, id_from_path=id, current=current, allowed=allowed)
    if isinstance(change, Problems):
        raise refused(change)
    return change


def _existing(root: Group, id: str) -> Group:
    group = tree.group_at(root, id)
    if group is None:
        raise no_group(id)
    return group


def _seen(root: Group, id: str, sight: AppSight) -> Group:
    """Return a group that is at least partly visible.

    Raises:
        Refused: The group does not exist, or nothing of it is visible.
    """
    group = _existing(root, id)
    if not _is_seen(root, id, sight):
        raise no_group(id)
    return group


def _is_seen(root: Group, id: str, sight: AppSight) -> bool:
    """Return whether a group exists and something of it is visible."""
    group = tree.group_at(root, id)
    if group is None or id == ROOT or sight.rights.is_open:
        return group is not None
    return bool(sight.tree(Group(ROOT, groups=(group,))).groups)


def _refuse_unseen(root: Group, id: str, meant: Group | Scale | GroupRollback, sight: AppSight) -> None:
    """Refuse to change an invisible group, or an invisible app of that id, as if it did not exist.

    Raises:
        Refusal: The caller lacks the right to create what would be in it.
    """
    app = tree.app_at(root, id)
    is_there = (app is not None and not sight.sees(app)) or tree.group_at(root, id) is not None
    if not is_there or _is_seen(root, id, sight) or sight.may_write_below(id):
        return
    for app in meant.all_apps() if isinstance(meant, Group) else ():
        sight.require_place(app.id)
    sight.require_place(id)


@dataclass(frozen=True, slots=True)
class _Past:
    """The past of a group: its versions by time, and the apps in them by id and version."""

    id: str
    shapes: Mapping[float, GroupShape]
    apps: Mapping[tuple[str, float], App]

    @classmethod
    def of(cls, view: View, id: str) -> Self:
        """Collect the past of a group on the engine's thread; versions are put together elsewhere."""
        shapes = dict(versions_of(view.roots, id))
        if not shapes:
            raise no_group(id)
        ids = {app_id for shape in shapes.values() for app_id, _ in apps_of(shape)}
        return cls(
            id, shapes, {(app_id, at): app for app_id in ids for at, app in known_versions(view, app_id)}
        )

    @classmethod
    def seen(cls, view: View, id: str, sight: AppSight) -> Self:
        """Collect the past of a group for a caller who sees a part of it now, or could create apps in it."""
        if tree.group_at(view.catalog.root, id) is not None:
            _seen(view.catalog.root, id, sight)
        elif not sight.may_write_below(id):
            raise no_group(id)
        return cls.of(view, id)

    def at(self, asked: str) -> Group:
        """Return the group as it was in a version."""
        shape = next((shape for version, shape in self.shapes.items() if stamp(version) == asked), None)
        if shape is None:
            raise Refused(404, f"Group '{self.id}' does not exist in version {asked}")
        return restored(shape, self.apps)


def _group_id(value: object, place: str) -> str:
    """Return the id of the group: the body's id, which may be relative to the path's, or the path's."""
    body_id = value.get("id") if isinstance(value, dict) else None
    if body_id is not None and not isinstance(body_id, str):
        raise not_json("error.expected.jsstring", at="/id")
    id = absolute(body_id or "", place)
    if ".." in steps_of(id):
        raise not_valid([Detail("/id", (problem_of(id),))])
    if len(steps_of(id)) > _DEEPEST:
        raise not_valid([Detail("/id", (f"groups may be nested at most {_DEEPEST} levels deep",))])
    return id


def _scaled(app: App, by: float) -> App:
    """Return an app with its instances multiplied by a factor."""
    instances = app.instances * by
    if not instances <= LARGEST_INTEGER:
        raise not_valid([Detail("/scaleBy", (f"{app.id} would have more than {LARGEST_INTEGER} instances",))])
    return replace(app, instances=math.ceil(instances))
