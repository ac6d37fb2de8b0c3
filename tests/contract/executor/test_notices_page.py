"""The example of docs/notices.md does what the page says."""

import json
import os
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/notices.md"


def test_the_example_keeps_its_work_tells_so_ends_with_75_and_goes_on(tmp_path: Path) -> None:
    program = PAGE.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    notice, told = tmp_path / "notice", tmp_path / "told"
    given = {"MESOS_GPU_NOTICE": str(notice), "MESOS_GPU_CHECKPOINT": str(told), "WORK": str(tmp_path)}

    def run(text: str) -> int:
        code = [sys.executable, "-c", text]
        return subprocess.run(code, env={**os.environ, **given}, timeout=60, check=False).returncode

    notice.write_text(json.dumps({"recalled": False}))
    assert run(program) == 75
    assert told.exists()
    assert json.loads((tmp_path / "state.json").read_text()) == {"step": 0}
    notice.write_text(json.dumps({"recalled": True}))
    (tmp_path / "state.json").write_text(json.dumps({"step": 990}))
    counting = program.replace("    ...", f"    print(step, file=open({str(tmp_path / 'steps')!r}, 'a'));")
    assert run(counting) == 0
    assert (tmp_path / "steps").read_text().split() == [str(step) for step in range(990, 1000)]
