"""Chaos finds what is wrong with apps and their deployments."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from mesos_gpu.engine.apps import deploying as apps
from mesos_gpu.engine.turn import Turn
from mesos_gpu.model.apps.catalog import Deployment
from mesos_gpu.policy.apps.rollout import moves
from mesos_gpu.policy.apps.rollout.moves import Bounds
from tests.chaos import run as chaos
from tests.chaos.violation import Violation
from tests.unit.simulate.test_simulate_chaos import ON_CHANGE, runs

STEPS = 20_000


def violation(seed: int, steps: int = STEPS) -> Violation | None:
    """The first one that is found; no shorter story is looked for."""
    chance = random.Random(seed)
    while steps > 0:
        shape, acts = chance.getrandbits(32), chaos.acts_of(chance, min(steps, 200), chaos.APPS_ALONE)
        _, done, first = chaos.replay(shape, acts)
        steps -= done + 1
        if first is not None:
            return first
    return None


@runs(1200)
@pytest.mark.parametrize("seed", range(2))
def test_chaos_of_apps_holds_in_a_rough_world(seed: int, steps: int) -> None:
    broken = violation(seed, steps)
    assert broken is None, str(broken)


# --- bugs put in on purpose


def _bounds(monkeypatch: pytest.MonkeyPatch, change: Callable[[Bounds], Bounds]) -> None:
    real = moves.bounds
    monkeypatch.setattr(moves, "bounds", lambda target: change(real(target)))


def _the_least_is_ignored(patch: pytest.MonkeyPatch) -> None:
    _bounds(patch, lambda bounds: replace(bounds, least=0))


def _the_most_is_ignored(patch: pytest.MonkeyPatch) -> None:
    _bounds(patch, lambda bounds: replace(bounds, most=99))


def _checks_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apps, "_healths", lambda state, job, task: [])


def _readiness_is_ignored(patch: pytest.MonkeyPatch) -> None:
    real = apps._instance
    patch.setattr(apps, "_instance", lambda state, job, now: replace(real(state, job, now), ready=True))


def _the_surplus_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moves._Scene, "surplus", lambda scene: [])


def _one_too_many_goes(patch: pytest.MonkeyPatch) -> None:
    real = moves._Scene.surplus
    patch.setattr(
        moves._Scene, "surplus", lambda scene: scene.fresh[: len(real(scene)) + 1] if real(scene) else []
    )


def _nothing_is_locked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(apps, "locks", lambda deployments, affected: ())


def _deployments_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    real = Turn.put

    def put(turn: Turn, value: object) -> None:
        turn.state.put(value) if isinstance(value, Deployment) else real(turn, value)

    patch.setattr(Turn, "put", put)


ENDS = "every deployment ends, and apps are as wanted"
BUGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "the least is ignored": (_the_least_is_ignored, {"enough instances serve"}),
    "the most is ignored": (_the_most_is_ignored, {"no app is over its capacity"}),
    "health checks are ignored": (_checks_are_ignored, {"enough instances serve"}),
    "readiness is ignored": (_readiness_is_ignored, {"enough instances serve"}),
    "the surplus stays": (_the_surplus_stays, {ENDS, "no app is over its capacity"}),
    "one too many goes": (_one_too_many_goes, {"no instance that is wanted is ended"}),
    "nothing is locked": (_nothing_is_locked, {"one deployment at a time changes an app"}),
    "deployments are not saved": (_deployments_are_not_saved, {"what is known is on disk"}),
}


#: Found within few steps.
IN_GATE = {"the most is ignored", "nothing is locked", "deployments are not saved"}


@pytest.mark.parametrize(
    ("bug", "rules"),
    [pytest.param(*BUGS[name], id=name, marks=() if name in IN_GATE else ON_CHANGE) for name in BUGS],
)
def test_chaos_of_apps_finds_a_seeded_bug(
    bug: Callable[[pytest.MonkeyPatch], None], rules: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    broken = violation(0)
    assert broken is not None
    assert broken.rule in rules, str(broken)
