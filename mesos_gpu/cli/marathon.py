"""Marathon's interface as Python calls, for the commands of apps and deployments."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NotRequired, TypedDict

from mesos_gpu.cli.client import Client, Refused

Json = dict[str, Any]
_GONE: Final = 404
_WARNINGS: Final = "warnings"  # value of `embed`
_APP_S: Final = 0.01  # time per app of a document, on a busy host


class Named(TypedDict):
    """An object referred to by its id."""

    id: str


class Action(TypedDict):
    """A step's action on an app."""

    action: str
    app: str


class Step(TypedDict):
    """Actions that run concurrently."""

    actions: list[Action]


class Deployment(TypedDict):
    """A change in progress.

    `waiting` has reasons by app why nothing happens, `overdue` the apps past their deadline, `undoes` the id of the
    deployment that this one rolls back.
    """

    id: str
    version: str
    affectedApps: list[str]
    steps: list[Step]
    currentActions: list[Action]
    currentStep: int
    totalSteps: int
    waiting: dict[str, str]
    overdue: NotRequired[list[str]]
    undoes: NotRequired[str | None]


class Warned(TypedDict):
    """A setting of an app or a group that is accepted without effect."""

    id: str
    path: str
    message: str


class Change(TypedDict):
    """The answer to a change."""

    version: str
    deploymentId: str
    warnings: NotRequired[list[Warned]]


class Difference(TypedDict):
    """An app before and after a change; null if it does not exist."""

    id: str
    before: Json | None
    after: Json | None


class Preview(TypedDict):
    """Effects of a change that was not made."""

    steps: list[Step]
    changes: list[Difference]
    warnings: list[Warned]


class Blocked(TypedDict):
    """An app with waiting instances."""

    app: Named
    count: int
    processedOffersSummary: "Offers"


class Offers(TypedDict):
    """Entry `processedOffersSummary` of an app: why its first waiting instance is not placed, if that is known."""

    why: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Marathon:
    """Requests for routes below /v2; each call raises what `Client`'s calls raise."""

    client: Client

    def apps(self, group: str | None = None, *, label: str | None = None) -> list[Json]:
        """Return all apps, those below a group, or those with labels (Marathon's selector), with `ends`."""
        query = {"embed": "apps.ends"}
        if group is None:
            apps: list[Json] = self.client.call("GET", "/v2/apps", Json, {**query, "label": label})["apps"]
        else:
            apps = self.client.call("GET", f"/v2/apps{group.rstrip('/')}/*", Json, query)["*"]
        return apps

    def app(self, id: str) -> Json:
        """Return an app with its tasks and `ends`."""
        app: Json = self.client.call("GET", f"/v2/apps{id}", Json, {"embed": "app.ends"})["app"]
        return app

    def versions(self, id: str) -> list[str]:
        """Return the versions of an app, latest first."""
        versions: list[str] = self.client.call("GET", f"/v2/apps{id}/versions", dict[str, list[str]])[
            "versions"
        ]
        return versions

    def version(self, id: str, version: str) -> Json:
        """Return an earlier version of an app."""
        return self.client.call("GET", f"/v2/apps{id}/versions/{version}", Json)

    def create(self, app: Json, *, force: bool) -> Json:
        """Create an app."""
        return self.client.call("POST", "/v2/apps", Json, {"force": force, "embed": _WARNINGS}, body=app)

    def change(self, verb: str, path: str, body: object = None, **flags: bool) -> Change:
        """Make a change; `flags` are query parameters."""
        query = {**_query(flags), "embed": _WARNINGS}
        return self.client.call(verb, path, Change, query, body=body, wait_s=answer_s(body))

    def preview(self, verb: str, path: str, body: object, **flags: bool) -> Preview:
        """Return the effects of a PUT or PATCH, without making it."""
        query = {**_query(flags), "dryRun": "true", "embed": "changes"}
        return self.client.call(verb, path, Preview, query, body=body, wait_s=answer_s(body))

    def deployments(self) -> list[Deployment]:
        """Return the deployments in progress, oldest first."""
        return self.client.call("GET", "/v2/deployments", list[Deployment], {"embed": "waiting"})

    def stop(self, id: str, *, force: bool) -> Change | None:
        """Undo a deployment by another one; with `force` only abort it."""
        if not force:
            return self.change("DELETE", f"/v2/deployments/{id}")
        return self.client.call("DELETE", f"/v2/deployments/{id}", type(None), {"force": "true"})

    def blocked(self) -> list[Blocked]:
        """Return apps with waiting instances."""
        return self.client.call("GET", "/v2/queue", dict[str, list[Blocked]])["queue"]

    def has_group(self, id: str) -> bool:
        """Return whether a group exists."""
        try:
            self.client.call("GET", f"/v2/groups{id}", Json)
        except Refused as err:
            if err.http_status != _GONE:
                raise
            return False
        return True


def answer_s(document: object) -> float:
    """Return the seconds that the scheduler may need for a document in addition to the normal timeout, by its apps."""
    return _APP_S * _count(document)


def _count(document: object) -> int:
    """Count the apps of a list or a group."""
    if isinstance(document, list):
        return len(document)
    if not isinstance(document, dict):
        return 0
    return len(document.get("apps") or ()) + sum(map(_count, document.get("groups") or ()))


def _query(flags: Mapping[str, bool]) -> dict[str, str]:
    return {key: str(value).lower() for key, value in flags.items()}
