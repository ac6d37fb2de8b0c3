"""Events of apps: complete, once each, and in the end those of the current state."""

import contextlib
import random
from collections import Counter

import pytest

from mesos_gpu.engine import effects as fx
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.step import step
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.model.apps import app_event
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.app_event import Stage
from mesos_gpu.policy.apps.task_ids import instance_of_job
from mesos_gpu.scheduler import app_events
from mesos_gpu.scheduler.app_events import Follower
from tests.chaos import run as chaos
from tests.chaos import world
from tests.chaos.acts import do
from tests.chaos.violation import Violation


class Reporter:
    """Stands in the place of `step` in a chaotic world, and follows it as a daemon does."""

    def __init__(self) -> None:
        self.state, self.told = State(0.0), list[app_event.What]()
        self.follower = Follower(self.state)

    def __call__(self, state: State, event: ev.Event, now: float, settings: Settings) -> list[fx.Effect]:
        if state is not self.state:  # the scheduler has started anew
            self.state, self.follower = state, Follower(state)
            # What its own checks found is lost with the old one; so is who listened.
            self.told = [what for what in self.told if not isinstance(what, app_event.HealthChanged)]
        try:
            effects = step(state, event, now, settings)
        except MesosGpuError as error:
            self.tell(self.follower.refused(event, error.what, now))
            raise
        self.tell(self.follower.follow(event, effects, state, now))
        return effects

    def tell(self, events: list[app_event.AppEvent]) -> None:
        self.told += [each.what for each in events]


@pytest.mark.parametrize("acts", [150, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", range(2))
def test_app_events_end_with_the_current_state(seed: int, acts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reporter = Reporter()
    monkeypatch.setattr(world, "step", reporter)
    place, chance = world.World(seed), random.Random(seed)
    for act in chaos.acts_of(chance, acts):
        with contextlib.suppress(Violation):  # whether all is well is for other tests
            do(place, act)
    last: dict[str, str] = {}
    stages: dict[str, list[app_event.Stage]] = {}
    health: dict[str, bool | None] = {}
    for what in reporter.told:
        match what:
            case app_event.InstanceChanged(subject, condition):
                assert last.get(subject.instance) != condition
                last[subject.instance] = condition
            case app_event.DeploymentMoved(stage, deployment):
                stages.setdefault(deployment.id, []).append(stage)
            case app_event.HealthChanged(_, task_id, healthy):
                health[task_id] = healthy
    state = reporter.state
    assert len(last) >= 3
    for ids in state.apps.instances.values():
        for job in (state.work.jobs[id] for id in ids):
            assert last[instance_of_job(job.id)] == app_events._condition(state, job)
            for task in state.work.round_of(job):
                if not task.ended and task.id in health:
                    assert health[task.id] is app_events._healthy(state, job, task)
    for id, told in stages.items():
        count = Counter(told)
        ended = count[Stage.DONE] + count[Stage.FAILED]
        assert ended == (id not in state.apps.deployments)
        assert count[Stage.STEP_BEGUN] == count[Stage.STEP_DONE] + count[app_event.Stage.STEP_FAILED] + (
            not ended
        )


def test_app_events_name_the_innermost_changed_group() -> None:
    for ids, group in (
        (["/a"], "/"),
        (["/a/b/c"], "/a/b"),
        (["/a/b/c", "/a/d"], "/a"),
        (["/a/b", "/c/b"], "/"),
        (["/a/b/c", "/a/b/d"], "/a/b"),
        ([], "/"),
    ):
        assert app_events._common_group(ids) == group


def test_app_events_omit_the_state_before_the_listener() -> None:
    state, settings = State(0.0), Settings.of("e", "m")
    root = Group("/", (App("/a", cmd="true", instances=2),))
    step(state, ev.AppsChanged("d", root), 1.0, settings)
    for now in (2.0, 3.0):
        step(state, ev.Tick(), now, settings)
    follower = Follower(state)
    effects = step(state, ev.Tick(), 4.0, settings)
    assert follower.follow(ev.Tick(), effects, state, 4.0) == []
    effects = step(state, ev.DeploymentDeleted("d", "e", force=True), 5.0, settings)
    told = follower.follow(ev.Tick(), effects, state, 5.0)
    assert [each.what.stage for each in told if isinstance(each.what, app_event.DeploymentMoved)] == [
        app_event.Stage.STEP_FAILED,
        app_event.Stage.FAILED,
    ]
