"""Decisions of the engine in random worlds equal those that are recorded."""

from typing import Final

import pytest

from tests.decisions.recorded import MIXES, SEEDS, difference, read

GATE: Final = 2  # seeds of each mix in `make test`; the others are of `make test-long`
_REMEDY: Final = (
    "; `python -m tests.decisions {} {}` prints them, here and at an older commit to compare; "
    "if the change is meant, record it: `python -m tests.decisions --write`"
)


@pytest.mark.parametrize(
    "seed", [seed if seed < GATE else pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS]
)
@pytest.mark.parametrize("mix", MIXES)
def test_decisions_of_the_engine_are_those_recorded(mix: str, seed: int) -> None:
    differs = difference(mix, seed, read(mix)[seed])
    assert not differs, f"{mix}, seed {seed}: {differs}{_REMEDY.format(mix, seed)}"
