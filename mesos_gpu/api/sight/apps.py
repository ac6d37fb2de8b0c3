"""What somebody may see of apps: those that may not be seen are not there, of others some fields are hidden."""

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

#: Fields of an app that all see who see the app; each other one is as if it had not been asked for.
_OPEN: Final = (
    "id", "cpus", "mem_mib", "disk_mib", "gpus", "gpu_milli", "instances", "upgrade_strategy", "kill_selection",
    "unreachable_strategy", "backoff_s", "backoff_factor", "max_launch_delay_s", "dependencies", "role", "user", "gpu",
    "owner",
)  # fmt: skip

_SEEN: Final = (APP_SEE, APP_READ, APP_ENV)


def subject_of(app: App) -> Subject:
    """What rights for an app are asked for."""
    return Subject(app.owner, app=app.id)


class AppSight:
    """What one caller may see."""

    def __init__(self, rights: Rights) -> None:
        """See what these rights allow."""
        self.rights = rights
        self._always = frozenset(right for right in _SEEN if rights.may_always(right))

    def may(self, right: Right, app: App) -> bool:
        """Whether that is allowed with the app."""
        return right in self._always or self.rights.may(right, subject_of(app))

    def sees(self, app: App) -> bool:
        """Whether the app is there at all."""
        return self.may(APP_SEE, app)

    @classmethod
    def of(cls, request: Request) -> Self:
        """What the sender of a request sees."""
        return cls(rights_of(request))

    def require(self, right: Right, app: App) -> None:
        """Let pass who may do that with the app.

        Raises:
            Refusal: He may not.
        """
        if not self.may(right, app):  # what is not seen is not named
            raise refusal(self.rights, right, subject_of(app) if self.sees(app) else None)

    def require_place(self, id: str) -> None:
        """Let pass who may have an app or a group of that id, before he is told whether there is one.

        Raises:
            Refusal: He may not.
        """
        require(self.rights, APP_WRITE, Subject(self.rights.caller.name, app=id))

    def shown(self, app: App) -> App:
        """An app without what is hidden. Values of its environment are for its owner, and where nobody is asked."""
        if self.rights.is_open:
            return app
        if not self.may(APP_READ, app):
            return App(**{name: getattr(app, name) for name in _OPEN})
        if app.env and not self.may(APP_ENV, app):
            return replace(app, env=_hidden(app))
        return app

    def require_whole(self, app: App) -> None:
        """Let pass who sees all of an app, as one of its versions is to come back.

        Raises:
            Refusal: He does not.
        """
        self.require(APP_READ, app)
        if app.env:
            self.require(APP_ENV, app)

    def tree(self, group: Group) -> Group:
        """The part of a tree that is seen: groups without an app that is seen are not there, but the topmost."""
        if self.rights.is_open:
            return group
        inner = (self.tree(each) for each in group.groups)
        return replace(
            group,
            apps=tuple(self.shown(app) for app in group.apps if self.sees(app)),
            groups=tuple(each for each in inner if each.apps or each.groups or self.may_write_below(each.id)),
        )

    def may_write_below(self, id: str) -> bool:
        """Whether an app of one's own may be in that group."""
        return self.rights.may(APP_WRITE, Subject(self.rights.caller.name, app=id))

    def deployment(self, deployment: Deployment) -> Deployment | None:
        """A deployment with the actions on apps that are seen; None: there are none."""
        if self.rights.is_open:
            return deployment
        plan = deployment.plan
        steps = self.actions(plan.steps)
        if not any(steps):
            return None
        seen = {action.app.id for step in steps for action in step}
        plan = replace(
            plan,
            original=self.tree(plan.original),
            target=self.tree(plan.target),
            steps=steps,
            restarts=plan.restarts & seen,
        )
        waiting = {id: why for id, why in deployment.waiting.items() if id in seen}
        progress = {id: each for id, each in deployment.progress.items() if id in seen}
        return replace(deployment, plan=plan, waiting=waiting, progress=progress, steady={})

    def actions(self, steps: Iterable[Iterable[Action]]) -> tuple[tuple[Action, ...], ...]:
        """The actions of steps on apps that are seen; a step of which none is seen is empty."""
        return tuple(
            tuple(replace(each, app=self.shown(each.app)) for each in step if self.sees(each.app))
            for step in steps
        )


def _hidden(app: App) -> dict[str, str]:
    return dict.fromkeys(app.env, HIDDEN)
