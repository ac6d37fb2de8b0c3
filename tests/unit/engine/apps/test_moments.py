"""Times of changes of apps: as Marathon's interface tells them, no two are one."""

import pytest

from mesos_gpu.engine.apps.history import moment
from mesos_gpu.engine.settings import Settings
from mesos_gpu.engine.state import State
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.apps.app import App, Group
from mesos_gpu.model.apps.catalog import AppCatalog, Deployment, RootVersion
from mesos_gpu.model.apps.rollout import Plan, VersionInfo


@pytest.mark.parametrize(
    ("before", "now", "at"),
    [
        (0.0, 5.0, 5.0),
        (5.0, 5.0004, 5.001),
        (5.0, 5.0006, 5.0006),
        (5.0, 5.001, 5.001),
        (5.0014, 5.0014, 5.002),
        (7.0, 5.0, 7.001),
    ],
)
@pytest.mark.parametrize("of", ["app", "deployment", "root"])
def test_change_comes_a_millisecond_after_the_one_before_at_least(
    of: str, before: float, now: float, at: float
) -> None:
    state = State(0.0)
    for kind in ("app", "deployment", "root"):
        version = before if kind == of else 0.0
        match kind:
            case "app":
                versions = {"/a": VersionInfo(version, version, version)}
                state.put(AppCatalog(Group("/", (App("/a"),)), versions, {}))
            case "deployment":
                state.put(Deployment("d", version, Plan(Group("/"), Group("/"), ()), {}))
            case _:
                state.put(RootVersion(version, Group("/")))  # type: ignore[arg-type]
    assert moment(Turn(state, Settings.of("executor", "monitor"), now)) == pytest.approx(at, abs=1e-9)


def test_first_change_is_of_now() -> None:
    assert moment(Turn(State(0.0), Settings.of("executor", "monitor"), 0.7)) == 0.7
