"""Budgets and caps of CPU seconds, and how they are measured."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runner import budget
from tests.runner.budget import Budget, Cost, Meter, Speed

ROOT = Path(__file__).parents[3]
BUDGET = Budget(1.0, {"unit": 0.3, "e2e": 3.0}, {"unit": 10.0, "unit/wire": 2.0, "e2e": 20.0}, {})
SPIN = "import time\nwhile time.process_time() < {}: pass\n"


def test_budget_of_deepest_folder_pays() -> None:
    assert BUDGET.folder_of("tests/unit/wire/test_a.py::test_b[x/y]") == "unit/wire"
    assert BUDGET.folder_of("tests/unit/wired/test_a.py::test_b") == "unit"
    assert BUDGET.folder_of("tests/web/test_a.py::test_b") == ""


def test_cap_of_a_test_is_that_of_its_first_folder() -> None:
    assert BUDGET.cap_of("tests/e2e/hosts/test_a.py::test_b") == 3.0


@pytest.mark.parametrize(
    ("costs", "fault"),
    [
        ({"tests/unit/test_a.py::test_b": Cost(0.1, shared_s=5.0)}, ""),
        ({f"tests/unit/wire/test_a.py::test_b[{n}]": Cost(0.19) for n in range(20)}, ""),
        (
            {f"tests/unit/wire/test_a.py::test_b[{n}]": Cost(0.23) for n in range(20)},
            "tests/unit/wire: 4.6 CPU s, budget 2 and a tenth",
        ),
        (
            {"tests/unit/wire/test_a.py::test_b": Cost(0.1, shared_s=4.5)},
            "tests/unit/wire: 4.6 CPU s, budget 2 and a tenth",
        ),
        ({"tests/unit/test_a.py::test_b": Cost(99.0, group="documents")}, ""),
    ],
)
def test_budget_faults_name_the_folder(costs: dict[str, Cost], fault: str) -> None:
    assert budget.find_faults(BUDGET, costs) == ([fault] if fault else [])


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(0.44), ""),
        (Cost(0.46), "0.46 CPU s, cap 0.3"),
        (Cost(0.1, shared_s=5.0), ""),
        (Cost(99.0, group="documents"), ""),
    ],
)
def test_cap_allows_for_the_noise_of_one_measurement(cost: Cost, text: str) -> None:
    name = "tests/unit/test_a.py::test_b"
    assert budget.find_costly(BUDGET, {name: cost}) == ({name: text} if text else {})


def test_budget_refuses_a_test_that_no_folder_pays_for() -> None:
    lone = Budget(1.0, {"unit": 0.3}, {"unit/wire": 1.0}, {})
    assert budget.find_faults(lone, {"tests/unit/test_a.py::test_b": Cost(0.1)}) == [
        "tests/unit/test_a.py::test_b: no folder of budget.toml holds it"
    ]


def test_budget_file_has_a_cap_and_a_budget_for_each_folder_of_the_gate() -> None:
    from tests.runner.tiers import GATE

    kept = budget.read_budget()
    assert set(kept.caps_s) == set(GATE)
    assert {kept.folder_of(f"tests/{folder}/test_a.py::test_b") for folder in GATE} - {""} == set(GATE)


def test_budget_file_lists_files_that_are_there() -> None:
    assert [name for name in budget.read_budget().files_s if not (ROOT / "tests" / name).is_file()] == []


def test_speed_of_a_slow_machine_reduces_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    now, loops = [100.0], [2.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(budget, "loop_ms", lambda: loops[0])
    speed = Speed(reference_ms=1.0)
    assert speed.factor() == 0.5
    loops[0] = 4.0
    assert speed.factor() == 0.5  # measured once within its interval
    for _ in range(7):
        now[0] += 10.0
        speed.factor()
    assert speed.factor() == 0.25


def spun(meter: Meter, script: str) -> float:
    before_s = meter.read_s()
    subprocess.run([sys.executable, "-ISc", f"import os, time\n{script}"], check=True)
    return meter.read_s() - before_s


def test_garbage_collection_is_counted_apart() -> None:
    garbage = budget.Garbage()
    kept: list[list[int]] = [[] for _ in range(300_000)]
    gc.collect()
    garbage.close()
    counted_s = garbage.used_s
    gc.collect()
    assert len(kept) == 300_000
    assert 0.0 < counted_s == garbage.used_s


def test_meter_counts_ended_children_once(tmp_path: Path) -> None:
    meter = Meter("unused", root=tmp_path / "absent")
    assert not meter.has_group
    assert spun(meter, SPIN.format(0.05)) >= 0.05
    assert meter.read_s() - meter.read_s() <= 0.0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root and cgroup v1 controllers")
@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/cpuacct").is_dir(), reason="needs root and cgroup v1 controllers"
)
@pytest.mark.on_change("runner")
def test_meter_counts_a_child_that_lives_on_as_it_computes() -> None:
    """The child's end adds nothing; a grandchild that another process collects counts, too."""
    script = f"""
import os, subprocess, sys
from tests.runner.budget import Meter
meter = Meter(f"mesos-gpu-tests-{{os.getpid()}}")
fork = "import os, time\\nos.fork() and os._exit(0)\\nos.setsid()\\n" + {SPIN.format(0.3)!r} + "os.write(1, b'done')"
with subprocess.Popen([sys.executable, "-ISc", fork], stdout=subprocess.PIPE) as process:
    assert process.stdout.read() == b"done"  # the first process has ended before
first = meter.read_s()
spin = "import os, time\\n" + {SPIN.format(0.3)!r} + "os.write(1, b'done'); time.sleep(60)"
with subprocess.Popen([sys.executable, "-ISc", spin], stdout=subprocess.PIPE) as process:
    assert process.stdout.read(4) == b"done"
    second = meter.read_s()
    process.kill()
print(first, second, meter.read_s())
meter.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    first, second, third = map(float, done.stdout.split())
    assert first >= 0.3
    assert second - first >= 0.3
    assert third - second < 0.1


@pytest.mark.on_change("runner")
def test_costs_of_shared_fixtures_count_for_the_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "test_shared.py").write_text(
        "import pytest, time\ndef spin(cpu_s=0.2):\n    end = time.process_time() + cpu_s\n"
        "    while time.process_time() < end: pass\n"
        "@pytest.fixture(scope='session')\ndef start():\n    spin(1)\n    yield\n    spin(1)\n"
        "@pytest.fixture(scope='module')\ndef rig(request):\n    spin()\n    request.getfixturevalue('start')\n"
        "    yield\n    spin()\n"
        "@pytest.fixture(scope='module', params=[1, 2])\ndef other(request): pass\n"
        "spin(1)\n"
        "def test_one(rig, other): pass\ndef test_two(rig): pass\n"
    )
    costs = tmp_path / "costs.jsonl"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.runner.budget",
        "-n",
        "0",
    ]
    command += ["-c", os.devnull, "--costs", str(costs), "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert "3 passed" in done.stdout, done.stdout
    by_name = budget.read_costs(costs)
    assert all(cost.own_s < 0.1 for cost in by_name.values()), by_name
    # Neither the collection nor the fixture of the session counts, which take a second each time. The seconds are those
    # of the reference machine.
    factor = budget.Speed(budget.read_budget().loop_ms).factor()
    assert 0.2 * factor <= sum(cost.shared_s for cost in by_name.values()) < 1.0 * factor


def test_budget_takes_over_the_costs_of_a_run(tmp_path: Path) -> None:
    file, document, costs_file = tmp_path / "budget.toml", tmp_path / "page.md", tmp_path / "costs.jsonl"
    file.write_text("# Head.\nloop_ms = 1.0\n\n[caps]\nunit = 0.3\n\n[folders]\nunit = 1\n\n[files]\n")
    document.write_text("Before <!-- budget -->old<!-- /budget --> after\n")
    costs = {f"tests/unit/test_a.py::test_{n}": Cost(2.0, 0.5, 12.0) for n in range(100)}
    costs["tests/unit/test_b.py::test_c"] = Cost(50.0, 0.0, 2.0, "documents")
    budget.write_costs(costs_file, costs)
    for name in ("test_a.py", "test_left_out.py"):
        (tmp_path / "unit").mkdir(exist_ok=True)
        (tmp_path / "unit" / name).touch()
    budget.take_over(budget.read_costs(costs_file), file, document, tests=tmp_path)
    files_s = {"unit/test_a.py": 1200.0, "unit/test_left_out.py": 0.0}
    assert budget.read_budget(file) == Budget(1.0, {"unit": 0.3}, {"unit": 250}, files_s)
    assert file.read_text().startswith("# Head.\n")
    assert document.read_text() == (
        "Before <!-- budget -->`make test` runs 100 tests in about 5 minutes on two processors; "
        "they need 250 CPU seconds.<!-- /budget --> after\n"
    )


@pytest.mark.on_change("runner")
@pytest.mark.parametrize("workers", ["0", "2"])
def test_budget_prints_the_dearest_tests_of_a_run(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_dear.py").write_text(
        "import time\ndef test_dear():\n    end = time.process_time() + 0.2\n"
        "    while time.process_time() < end: pass\ndef test_cheap(): pass\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.runner.budget",
        "-n",
        workers,
        "-c",
        os.devnull,
    ]
    command += ["--costs", str(tmp_path / "costs"), "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if "CPU s  " in line]
    assert [line.split()[-1] for line in lines] == ["test_dear.py::test_dear", "test_dear.py::test_cheap"]
