"""Budgets and caps of CPU seconds, and how they are measured."""

import os
import subprocess
import sys
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
        ({"tests/unit/test_a.py::test_b": Cost(0.3)}, ""),
        (
            {"tests/unit/test_a.py::test_b": Cost(0.31)},
            "tests/unit/test_a.py::test_b: 0.31 CPU s, cap 0.3",
        ),
        ({"tests/unit/test_a.py::test_b": Cost(0.1, shared_s=5.0)}, ""),
        ({f"tests/unit/wire/test_a.py::test_b[{n}]": Cost(0.22) for n in range(10)}, ""),
        (
            {f"tests/unit/wire/test_a.py::test_b[{n}]": Cost(0.23) for n in range(10)},
            "tests/unit/wire: 2.3 CPU s, budget 2 and a tenth",
        ),
        (
            {"tests/unit/wire/test_a.py::test_b": Cost(0.1, shared_s=2.2)},
            "tests/unit/wire: 2.3 CPU s, budget 2 and a tenth",
        ),
        ({"tests/unit/test_a.py::test_b": Cost(99.0, group="documents")}, ""),
    ],
)
def test_budget_faults_name_test_or_folder(costs: dict[str, Cost], fault: str) -> None:
    assert budget.find_faults(BUDGET, costs) == ([fault] if fault else [])


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


def test_speed_of_a_slow_machine_reduces_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2.0, 2.0, 2.0])
    monkeypatch.setattr(budget, "loop_ms", lambda: next(times))
    speed = Speed(loop_ms=1.0)
    assert speed.factor() == 0.5
    assert speed.factor() == 0.5
    assert list(times) == [2.0, 2.0]  # measured once within its interval


def test_meter_counts_ended_children(tmp_path: Path) -> None:
    meter = Meter("unused", root=tmp_path / "cpuacct")
    before = meter.read_s()
    subprocess.run([sys.executable, "-c", SPIN.format(0.15)], check=True)
    assert budget.spent_s(before, meter.read_s()) >= 0.15
    meter.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root and cgroup v1 controllers")
@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/cpuacct").is_dir(), reason="needs root and cgroup v1 controllers"
)
def test_meter_counts_processes_that_others_collect() -> None:
    daemon = f"""
import os, time
if os.fork():
    os._exit(0)
os.setsid()
{SPIN.format(0.3)}os.write(1, b"done")
"""
    script = f"""
import os, subprocess, sys
from tests.runner.budget import Meter, spent_s
meter = Meter(f"mesos-gpu-tests-{{os.getpid()}}")
before = meter.read_s()
with subprocess.Popen([sys.executable, "-c", {daemon!r}], stdout=subprocess.PIPE) as process:
    assert process.stdout.read() == b"done"  # the first process has ended before
print(spent_s(before, meter.read_s()))
meter.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert float(done.stdout) >= 0.3


def test_budget_takes_over_the_costs_of_a_run(tmp_path: Path) -> None:
    file, document, costs_file = tmp_path / "budget.toml", tmp_path / "page.md", tmp_path / "costs.jsonl"
    file.write_text("# Head.\nloop_ms = 1.0\n\n[caps]\nunit = 0.3\n\n[folders]\nunit = 1\n\n[files]\n")
    document.write_text("Before <!-- budget -->old<!-- /budget --> after\n")
    costs = {f"tests/unit/test_a.py::test_{n}": Cost(2.0, 0.5, 12.0) for n in range(100)}
    costs["tests/unit/test_b.py::test_c"] = Cost(50.0, 0.0, 2.0, "documents")
    budget.write_costs(costs_file, costs)
    budget.take_over(budget.read_costs(costs_file), file, document)
    assert budget.read_budget(file) == Budget(1.0, {"unit": 0.3}, {"unit": 250}, {"unit/test_a.py": 1200.0})
    assert file.read_text().startswith("# Head.\n")
    assert document.read_text() == (
        "Before <!-- budget -->`make test` runs 100 tests in about 7 minutes on two processors; "
        "they need 250 CPU seconds.<!-- /budget --> after\n"
    )


@pytest.mark.on_change("runner")
@pytest.mark.parametrize("workers", ["0", "2"])
def test_budget_prints_the_dearest_tests_of_a_run(tmp_path: Path, workers: str) -> None:
    (tmp_path / "test_dear.py").write_text(
        "import time\ndef test_dear():\n    end = time.process_time() + 0.2\n"
        "    while time.process_time() < end: pass\ndef test_cheap(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.runner.budget", "-n", workers, "-c", os.devnull]
    command += ["--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    lines = [line for line in done.stdout.splitlines() if "CPU s  " in line]
    assert [line.split()[-1] for line in lines] == ["test_dear.py::test_dear", "test_dear.py::test_cheap"]
