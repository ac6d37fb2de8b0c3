"""What the page on isolation says of each method; and that a task with whole cards pays for none of it."""

import subprocess
import sys
from pathlib import Path

from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.model.shares.share import Method, Share, guarantee

ROOT = Path(__file__).parents[4]


def rows() -> dict[str, list[str]]:
    """Read the table of methods in docs/isolation.md, by method."""
    page = (ROOT / "docs" / "isolation.md").read_text()
    lines = page.partition("## Shares of a card")[2].partition("\n## ")[0].splitlines()
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")
    ]
    return {name.strip("`"): rest for name, *rest in cells}


def test_the_page_has_each_method_with_its_guarantee_the_best_first() -> None:
    table = rows()
    assert list(table) == [method.value for method in Method]
    for method in Method:
        given = guarantee(Share(250, 1, 1, method, "alice"))
        assert table[method.value][:3] == [given.memory, given.compute, given.faults], method
        firm = given.memory in ("hardware", "kernel", "driver")
        least = Isolation.STRICT if firm else Isolation.ANY if given.memory == "none" else Isolation.SHARED
        assert table[method.value][3] == least.value, method


def test_an_executor_of_whole_cards_imports_nothing_of_shares() -> None:
    code = (
        "import sys, isolator.executor.main\n"
        "dear = ('isolator.shares', 'isolator.gpus.share_claims', 'mesos_gpu.policy.sharing', 'subprocess',"
        " 'mesos_gpu.model.shares.share', 'mesos_gpu.model.shares.request', 'mesos_gpu.wire.mesos.sharing',"
        " 'volumes.model', 'volumes.store')\n"
        "print([name for name in sys.modules if name.startswith(dear)])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
