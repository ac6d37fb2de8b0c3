"""The time of day is set under programs of Mesos: what counts, and that one that starts anew is the same process."""

import subprocess

import pytest

from mesos_gpu.libmesos.helpers import ROOT, python
from mesos_gpu.libmesos.program import AHEAD_S, BACK_S, Watch, ahead

SOME = 77  # a descriptor
LITTLE_S = BACK_S / 2
AGAIN = f"""\
import os, sys
os.read(0, 1) or sys.exit("nobody says go")
print(os.getpid(), *sys.argv[1:], os.path.exists("/proc/self/fd/{SOME}"), flush=True)
sys.path.insert(0, {ROOT!r})
from mesos_gpu.libmesos import program
if "AGAIN" not in os.environ:
    os.environ["AGAIN"] = "yes"
    os.dup2(0, {SOME})
    program.again()
"""


@pytest.mark.parametrize(
    ("shown", "step_s"),
    [
        ([0.0, 0.1, -0.1, -LITTLE_S], 0.0),
        ([0.0, AHEAD_S / 2, AHEAD_S], 0.0),
        ([0.0, 0.1, 3600.0], 3599.9),
        ([0.0, 3600.0, 3600.1], 0.0),
        ([0.0, -3600.0], -3600.0),
        ([100.0, 3700.0, 100.0], -3600.0),
        ([0.0, -LITTLE_S, -2 * LITTLE_S, -3 * LITTLE_S], -3 * LITTLE_S),
    ],
    ids=[
        "little",
        "little ahead",
        "ahead",
        "ahead before",
        "back",
        "ahead and right again",
        "little by little",
    ],
)
def test_a_clock_that_was_set_is_seen(shown: list[float], step_s: float) -> None:
    looks = iter(shown)
    watch = Watch(lambda: next(looks))
    assert [watch.step_s() for _ in shown[1:]][-1] == pytest.approx(step_s)


def test_a_clock_that_nobody_sets_stays() -> None:
    watch = Watch()
    assert watch.step_s() == 0
    assert ahead() == pytest.approx(ahead(), abs=AHEAD_S)


def test_a_program_starts_anew_in_its_process_and_waits_for_nobody() -> None:
    with subprocess.Popen(
        [python(), "-ISc", AGAIN, "--work_dir=/nowhere"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        said, _ = process.communicate("\n", timeout=60)
    assert said.splitlines() == [f"{process.pid} --work_dir=/nowhere False"] * 2
    assert process.returncode == 0
