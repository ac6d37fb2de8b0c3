"""Routes of /v2/apps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from mesos_gpu.api.http.answers import json_answer, large_answer
from mesos_gpu.api.marathon import tree, views
from mesos_gpu.api.marathon.asked import Place, embeds, flag, json_body
from mesos_gpu.api.marathon.core import DEPLOYMENT_ID, AppChanges, result
from mesos_gpu.api.marathon.errors import Refused, all_refused, no_app, no_group, not_json, not_valid, refused
from mesos_gpu.api.sight.apps import AppSight
from mesos_gpu.engine.reading.apps import past_versions
from mesos_gpu.engine.reading.view import View
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.wire.marathon.app import Rollback, app_of, app_to_json, updated
from mesos_gpu.wire.marathon.moments import moment, stamp
from mesos_gpu.wire.marathon.paths import absolute
from mesos_gpu.wire.marathon.problems import Detail, Problems
from mesos_gpu.wire.marathon.select import selectors_of

_OF_ALL: Final = frozenset({views.COUNTS, views.DEPLOYMENTS})  # embedded by default, as in Marathon
_OF_ONE: Final = _OF_ALL | {views.TASKS, views.LAST_FAILURE}
_PREFIXES: Final = ("apps.", "app.")
Past = Sequence[tuple[float, App]]


class Apps:
    """HTTP handlers of apps: reading, creating, changing, deleting and restarting them, and their earlier versions."""

    def __init__(self, core: AppChanges) -> None:
        self._core = core

    # --- reading

    async def list(self, request: Request, _place: Place) -> Response:
        """GET /v2/apps; an extension to Marathon is `crashing=true`: only apps whose instances end again and again."""
        is_wanted = _filter(request, AppSight.of(request))
        return await self._infos(request, "apps", lambda root: root, is_wanted)

    async def below(self, request: Request, place: Place) -> Response:
        """GET /v2/apps/{group}/*: the apps of a group."""

        def within(root: Group) -> Group:
            group = tree.group_at(root, place.id)
            if group is None:
                raise no_group(place.id)
            return group

        return await self._infos(request, "*", within, lambda _: True)

    async def _infos(
        self, request: Request, key: str, within: Callable[[Group], Group], wanted: Callable[[App], bool]
    ) -> Response:
        """Answer with the visible apps of a group.

        Args:
            request: Query parameters say what is embedded.
            key: Key of the list in the answer.
            within: Function that returns the group in the tree of all apps.
            wanted: Function that returns whether an app is listed.
        """
        embed = embeds(request, *_PREFIXES) | _OF_ALL
        failures = not embed.isdisjoint((views.LAST_FAILURE, views.FAILURES))
        crashing = flag(request, "crashing")
        ends = crashing or views.ENDS in embed
        sight = AppSight.of(request)

        def gather(view: View) -> list[views.Facts]:
            chosen = (app for app in within(view.catalog.root).all_apps() if wanted(app))
            facts = views.facts_of(view, chosen, sight, failures=failures, ends=ends)
            return (
                [app_facts for app_facts in facts if app_facts.ended and app_facts.ended.crashing]
                if crashing
                else facts
            )

        facts = await self._core.read_copy(gather)
        return await large_answer({key: (views.app_info(app_facts, embed) for app_facts in facts)})

    async def show(self, request: Request, place: Place) -> Response:
        """GET /v2/apps/{id}: an app."""
        embed = embeds(request, *_PREFIXES) | _OF_ONE
        sight = AppSight.of(request)
        facts = await self._core.read(lambda view: facts_at(view, place.id, sight, ends=views.ENDS in embed))
        return json_answer({"app": views.app_info(facts, embed)})

    async def versions(self, request: Request, place: Place) -> Response:
        """GET /v2/apps/{id}/versions: the versions of an app, the latest one first."""
        sight = AppSight.of(request)
        past = await self._core.read(lambda view: _past(view, place.id, sight))
        return json_answer({"versions": [stamp(version) for version, _ in reversed(past)]})

    async def version(self, request: Request, place: Place) -> Response:
        """GET /v2/apps/{id}/versions/{v}: an app as it was in a version."""
        sight = AppSight.of(request)
        past = await self._core.read(lambda view: _past(view, place.id, sight))
        version, app = _version(place.id, place.item, past)
        return json_answer({**app_to_json(sight.shown(app)), "version": stamp(version)})

    # --- changing

    async def create(self, request: Request, _place: Place) -> Response:
        """POST /v2/apps: create an app."""
        value = await json_body(request)
        sight = AppSight.of(request)
        ids: list[str] = []

        def target(root: Group) -> Group:
            app = _valid_app(app_of(value, allowed=self._core.allowed(root)))
            sight.require_place(app.id)
            if tree.app_at(root, app.id) is not None:
                raise Refused(409, f"An app with id [{app.id}] already exists.")
            ids[:] = [app.id]
            return _with_apps(root, [app])

        deployment = await self._core.change(request, target, force=flag(request, "force"))
        (id,) = ids
        facts = await self._core.read(lambda view: facts_at(view, id, sight))
        await self._core.posted(request, ids)
        headers = {"Location": f"/v2/apps{id}", DEPLOYMENT_ID: deployment.id}
        body = views.app_info(facts, _OF_ALL | {views.TASKS}) | await self._core.warnings(request, deployment)
        return json_answer(body, 201, headers)

    async def put(self, request: Request, place: Place) -> Response:
        """PUT /v2/apps/{id}: update an app, replace it with partialUpdate=false, or create it if it does not exist."""
        updates = [(place.id, await json_body(request), "")]
        location = f"/v2/apps{place.id}"
        return await self._update(request, updates, whole=_whole(request), create=True, location=location)

    async def patch(self, request: Request, place: Place) -> Response:
        """PATCH /v2/apps/{id}: update an app."""
        updates = [(place.id, await json_body(request), "")]
        return await self._update(request, updates, whole=False, create=False)

    async def put_all(self, request: Request, _place: Place) -> Response:
        """PUT /v2/apps: update or create each app of a list."""
        updates = _updates_of(await json_body(request))
        return await self._update(request, updates, whole=_whole(request), create=True)

    async def patch_all(self, request: Request, _place: Place) -> Response:
        """PATCH /v2/apps: update each app of a list."""
        updates = _updates_of(await json_body(request))
        return await self._update(request, updates, whole=False, create=False)

    async def _update(
        self,
        request: Request,
        asked: Sequence[tuple[str, Any, str]],
        *,
        whole: bool,
        create: bool,
        location: str | None = None,
    ) -> Response:
        """Update or create apps by a deployment.

        Args:
            asked: Id, body, and the body's path in the request for error messages.
            whole: Whether a body replaces the app, or updates single fields.
            create: Whether a missing app is created.
            location: Value of the header Location if the app is created.
        """
        past: Mapping[str, Past] = await self._core.read(
            lambda view: {id: past_versions(view, id) for id, _, _ in asked}
        )
        created: list[str] = []
        sight = AppSight.of(request)

        def target(root: Group) -> Group:
            apps: list[App] = []
            wrong: list[tuple[str, Problems]] = []
            created.clear()
            current = {app.id: app for app in root.all_apps()}
            for id, value, place in asked:
                now = current.get(id)
                is_seen = now is not None and sight.sees(now)
                if create and not is_seen:
                    sight.require_place(id)
                if not is_seen and (now is not None or not create):
                    raise no_app(id)
                if now is None:
                    created.append(id)
                allowed = self._core.allowed(root)
                result_app = (
                    app_of(value, id_from_path=id, allowed=allowed)
                    if now is None or whole
                    else updated(now, value, allowed=allowed)
                )
                if isinstance(result_app, Rollback):
                    result_app = _version(id, result_app.version, past[id])[1]
                    sight.require_whole(result_app)
                    self._core.check(place, result_app, root)
                if isinstance(result_app, Problems):
                    wrong.append((place, result_app))
                else:
                    apps.append(result_app)
            if wrong:
                raise all_refused(wrong)
            return _with_apps(root, apps)

        if flag(request, "dryRun"):
            return json_answer(await self._core.preview(request, target))
        deployment = await self._core.change(request, target, force=flag(request, "force"))
        await self._core.posted(request, [id for id, _, _ in asked])
        more = await self._core.warnings(request, deployment)
        if location and created:
            return result(deployment, 201, {"Location": location}, more=more)
        return result(deployment, more=more)

    async def delete(self, request: Request, place: Place) -> Response:
        """DELETE /v2/apps/{id}: delete an app; overrides other deployments unless force=false is given."""
        sight = AppSight.of(request)

        def target(root: Group) -> Group:
            app_seen(root, place.id, sight)
            return tree.without_app(root, place.id)

        return result(await self._core.change(request, target, force=flag(request, "force", default=True)))

    async def restart(self, request: Request, place: Place) -> Response:
        """POST /v2/apps/{id}/restart: replace all instances of an app."""
        sight = AppSight.of(request)

        def target(root: Group) -> Group:
            app_seen(root, place.id, sight)
            return root

        restarts = frozenset([place.id])
        return result(
            await self._core.change(request, target, force=flag(request, "force"), restarts=restarts)
        )


def _whole(request: Request) -> bool:
    return not flag(request, "partialUpdate", default=True)


def facts_at(view: View, id: str, sight: AppSight, *, ends: bool = False) -> views.Facts:
    """Return the visible facts of the app `id`; see `views.facts_of`.

    Raises:
        Refused: The app does not exist, or is invisible.
    """
    (facts,) = views.facts_of(view, [app_seen(view.catalog.root, id, sight)], sight, failures=True, ends=ends)
    return facts


def app_seen(root: Group, id: str, sight: AppSight) -> App:
    """Return the app `id`.

    Raises:
        Refused: The app does not exist, or is invisible.
    """
    app = tree.app_at(root, id)
    if app is None or not sight.sees(app):
        raise no_app(id)
    return app


def _past(view: View, id: str, sight: AppSight) -> Past:
    app_seen(view.catalog.root, id, sight)
    return past_versions(view, id)


def _version(id: str, text: str, past: Past) -> tuple[float, App]:
    """Return the version of an app that a time in ISO 8601 names, from its past versions."""
    try:
        version_text = stamp(moment(text))
    except (ValueError, OverflowError, OSError) as error:
        raise Refused(
            422, f"{text!r} is not a version; a version looks like 2015-02-03T12:30:00.000Z"
        ) from error
    version = next((past_version for past_version in past if stamp(past_version[0]) == version_text), None)
    if version is None:
        raise no_app(id, text)
    return version


def _valid_app(parsed: App | Problems) -> App:
    if isinstance(parsed, Problems):
        raise refused(parsed)
    return parsed


def _with_apps(root: Group, apps: Sequence[App]) -> Group:
    root = tree.with_apps(root, apps)
    refuse_clash(root, [app.id for app in apps])
    return root


def refuse_clash(root: Group, ids: Sequence[str]) -> None:
    """Check that no added id belongs to an app and a group at once.

    Raises:
        Refused: An id belongs to both.
    """
    if tree.clash(root, ids):
        raise not_valid([Detail("/", ("Groups and Applications may not have the same identifier.",))])


def _updates_of(value: object) -> list[tuple[str, Any, str]]:
    """Parse a JSON list of app updates.

    Returns:
        Absolute app id, body, and position in the list ("(0)") of each update.

    Raises:
        Refused: The value is not a list of objects with distinct ids.
    """
    if not isinstance(value, list):
        raise not_json("error.expected.jsarray")
    updates: dict[str, tuple[str, Any, str]] = {}
    for i, update in enumerate(value):
        id = update.get("id") if isinstance(update, dict) else None
        if not isinstance(id, str) or not id:
            raise not_json("error.path.missing" if id is None else "error.expected.jsstring", at=f"({i})/id")
        path = absolute(id)
        if path in updates:
            raise not_valid([Detail(f"({i})/id", (f"{path} occurs twice",))])
        updates[path] = (path, update, f"({i})")
    return list(updates.values())


def _filter(request: Request, sight: AppSight) -> Callable[[App], bool]:
    """Return the filter that a query describes.

    It only sees visible fields: by searching hidden ones a caller could guess them, a character at a time.
    """
    query = request.query_params
    cmd, id = query.get("cmd", "").lower(), query.get("id", "").lower()
    selectors = selectors_of(query.get("label", ""))
    if isinstance(selectors, str):
        raise Refused(422, selectors)

    def wanted(app: App) -> bool:
        app = sight.shown(app)
        fits = cmd in (app.cmd or "").lower() and id in app.id.lower()
        return fits and all(selector.matches(app.labels) for selector in selectors)

    return wanted
