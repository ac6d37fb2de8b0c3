"""Numbers of examples of properties: few in `make test`, all of them where they are drawn at random."""

import os
from typing import Any

from hypothesis import settings

RANDOM = os.environ.get("MESOS_GPU_TEST_RANDOM") == "1"


def examples(gate: int, full: int, **more: Any) -> settings:
    """Return settings for a property: its number of examples, and `more` of Hypothesis' own.

    Args:
        gate: Examples in each run of `make test`, at most a CPU second of them.
        full: Examples with MESOS_GPU_TEST_RANDOM=1, as in long runs.
        more: Settings of Hypothesis.
    """
    return settings(max_examples=full if RANDOM else gate, **more)
