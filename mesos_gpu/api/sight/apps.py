"""Visibility of apps: an invisible app is left out of answers; of others some fields may be hidden."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Self

from starlette.requests import Request

from mesos_gpu.access.decide import Rights, Subject
from mesos_gpu.access.rights import APP_ENV, APP_READ, APP_SEE, APP_WRITE, Right
from mesos_gpu.api.http.rights import refusal, require, rights_of
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.model.apps.rollout import Action
from mesos_gpu.wire.job_fields import HIDDEN

#: Fields of an app that are visible to all who see the app; hidden fields have their defaults.
_OPEN: Final = (
    "id", "cpus", "mem_mib", "disk_mib", "gpus", "gpu_milli", "instances", "upgrade_strategy", "kill_selection",
    "unreachable_strategy", "backoff_s", "backoff_factor", "max_launch_delay_s", "dependencies", "role", "user", "gpu",
    "owner",
)  # fmt: skip

_SEEN: Final = (APP_SEE, APP_READ, APP_ENV)


def subject_of(app: App) -> Subject:
    """Return the subject of rights for an app."""
    return Subject(app.owner, app=app.id)


class AppSight:
    """The apps and their fields that a caller may see.

    Args:
        rights: Rights of the caller.
    """

    def __init__(self, rights: Rights) -> None:
        self.rights = rights
        self._always = frozenset(right for right in _SEEN if rights.may_always(right))

    def may(self, right: Right, app: App) -> bool:
        """Return whether the caller has a right for the app."""
        return right in self._always or self.rights.may(right, subject_of(app))

    def sees(self, app: App) -> bool:
        """Return whether the app is visible."""
        return self.may(APP_SEE, app)

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the visibility of apps for the sender of a request."""
        return cls(rights_of(request))

    def require(self, right: Right, app: App) -> None:
        """Require a right for an app.

        Raises:
            Refusal: The caller lacks it.
        """
        if not self.may(right, app):  # an invisible app is not named in the refusal
            raise refusal(self.rights, right, subject_of(app) if self.sees(app) else None)

    def require_place(self, id: str) -> None:
        """Require the right to create an app or group with an id, before it is revealed whether one exists.

        Raises:
            Refusal: The caller lacks it.
        """
        require(self.rights, APP_WRITE, Subject(self.rights.caller.name, app=id))

    def shown(self, app: App) -> App:
        """Return an app without hidden fields. Values of its environment need a right of their own."""
        if self.rights.is_open:
            return app
        if not self.may(APP_READ, app):
            return App(**{name: getattr(app, name) for name in _OPEN})
        if app.env and not self.may(APP_ENV, app):
            return replace(app, env=_hidden(app))
        return app

    def require_whole(self, app: App) -> None:
        """Require that the caller sees all of an app, one of whose versions is to be restored.

        Raises:
            Refusal: Some of it is hidden.
        """
        self.require(APP_READ, app)
        if app.env:
            self.require(APP_ENV, app)

    def tree(self, group: Group) -> Group:
        """Return the visible part of a tree of apps: groups with visible apps, or in which the caller may create apps.

        The topmost group is always in it.
        """
        if self.rights.is_open:
            return group
        inner = (self.tree(child) for child in group.groups)
        return replace(
            group,
            apps=tuple(self.shown(app) for app in group.apps if self.sees(app)),
            groups=tuple(
                child for child in inner if child.apps or child.groups or self.may_write_below(child.id)
            ),
        )

    def may_write_below(self, id: str) -> bool:
        """Return whether the caller may create an app in a group."""
        return self.rights.may(APP_WRITE, Subject(self.rights.caller.name, app=id))

    def deployment(self, deployment: Deployment) -> Deployment | None:
        """Return a deployment with its actions on visible apps; None if there are none."""
        if self.rights.is_open:
            return deployment
        plan = deployment.plan
        steps = self.actions(plan.steps)
        if not any(steps):
            return None
        visible = {action.app.id for step in steps for action in step}
        plan = replace(
            plan,
            original=self.tree(plan.original),
            target=self.tree(plan.target),
            steps=steps,
            restarts=plan.restarts & visible,
        )
        waiting = {id: why for id, why in deployment.waiting.items() if id in visible}
        progress = {id: step for id, step in deployment.progress.items() if id in visible}
        return replace(deployment, plan=plan, waiting=waiting, progress=progress, steady={})

    def actions(self, steps: Iterable[Iterable[Action]]) -> tuple[tuple[Action, ...], ...]:
        """Return the actions of steps on visible apps; a step without any is empty."""
        return tuple(
            tuple(replace(action, app=self.shown(action.app)) for action in step if self.sees(action.app))
            for step in steps
        )


def _hidden(app: App) -> dict[str, str]:
    return dict.fromkeys(app.env, HIDDEN)
