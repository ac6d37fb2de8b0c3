"""Marathon's interface as Python calls: what the commands for apps and deployments ask the scheduler."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NotRequired, TypedDict

from mesos_gpu.cli.client import Client, Refused

Json = dict[str, Any]
_GONE: Final = 404
_WARNINGS: Final = "warnings"  # for `embed`
_APP_S: Final = 0.01  # for each app of a document, on a busy host


class Named(TypedDict):
    """What is told by its id."""

    id: str


class Action(TypedDict):
    """What a step does to an app."""

    action: str
    app: str


class Step(TypedDict):
    """Actions side by side."""

    actions: list[Action]


class Deployment(TypedDict):
    """A change under way; `waiting`: by app, why nothing is done; `overdue`: apps whose deadline has passed; `undoes`:
    the deployment that it rolls back."""

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
    """Something of an app or a group that is accepted and has no effect."""

    id: str
    path: str
    message: str


class Change(TypedDict):
    """The answer to a change."""

    version: str
    deploymentId: str
    warnings: NotRequired[list[Warned]]


class Difference(TypedDict):
    """An app before and after a change; null: it is not there."""

    id: str
    before: Json | None
    after: Json | None


class Preview(TypedDict):
    """What a change would do."""

    steps: list[Step]
    changes: list[Difference]
    warnings: list[Warned]


class Blocked(TypedDict):
    """An app whose instances wait."""

    app: Named
    count: int
    processedOffersSummary: "Offers"


class Offers(TypedDict):
    """What keeps the first of them."""

    why: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Marathon:
    """The routes below /v2; each call raises what `Client`'s do."""

    client: Client

    def apps(self, group: str | None = None, *, label: str | None = None) -> list[Json]:
        """All apps, those below a group, or those with labels (Marathon's selector), and how their instances end."""
        query = {"embed": "apps.ends"}
        if group is None:
            apps: list[Json] = self.client.call("GET", "/v2/apps", Json, {**query, "label": label})["apps"]
        else:
            apps = self.client.call("GET", f"/v2/apps{group.rstrip('/')}/*", Json, query)["*"]
        return apps

    def app(self, id: str) -> Json:
        """Read an app with its tasks, and how they end by themselves."""
        app: Json = self.client.call("GET", f"/v2/apps{id}", Json, {"embed": "app.ends"})["app"]
        return app

    def versions(self, id: str) -> list[str]:
        """List the versions of an app, the latest first."""
        versions: list[str] = self.client.call("GET", f"/v2/apps{id}/versions", dict[str, list[str]])[
            "versions"
        ]
        return versions

    def version(self, id: str, version: str) -> Json:
        """An app as it was."""
        return self.client.call("GET", f"/v2/apps{id}/versions/{version}", Json)

    def create(self, app: Json, *, force: bool) -> Json:
        """A new app."""
        return self.client.call("POST", "/v2/apps", Json, {"force": force, "embed": _WARNINGS}, body=app)

    def change(self, verb: str, path: str, body: object = None, **flags: bool) -> Change:
        """Ask for a change; `flags` are of the query."""
        query = {**_query(flags), "embed": _WARNINGS}
        return self.client.call(verb, path, Change, query, body=body, wait_s=answer_s(body))

    def preview(self, verb: str, path: str, body: object, **flags: bool) -> Preview:
        """What a PUT or PATCH would do."""
        query = {**_query(flags), "dryRun": "true", "embed": "changes"}
        return self.client.call(verb, path, Preview, query, body=body, wait_s=answer_s(body))

    def deployments(self) -> list[Deployment]:
        """All that are under way, the oldest first."""
        return self.client.call("GET", "/v2/deployments", list[Deployment], {"embed": "waiting"})

    def stop(self, id: str, *, force: bool) -> Change | None:
        """Undo a deployment by another one; with `force` only end it."""
        if not force:
            return self.change("DELETE", f"/v2/deployments/{id}")
        return self.client.call("DELETE", f"/v2/deployments/{id}", type(None), {"force": "true"})

    def blocked(self) -> list[Blocked]:
        """Apps with instances that wait for a place."""
        return self.client.call("GET", "/v2/queue", dict[str, list[Blocked]])["queue"]

    def has_group(self, id: str) -> bool:
        """Whether there is a group of that id."""
        try:
            self.client.call("GET", f"/v2/groups{id}", Json)
        except Refused as err:
            if err.http_status != _GONE:
                raise
            return False
        return True


def answer_s(document: object) -> float:
    """Return how many seconds the scheduler may need for a document beside the time of any answer, by its apps."""
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
