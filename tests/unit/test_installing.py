"""Progress of `make setup`: which lines it makes of what pip prints."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

from scripts.installing import Progress
from tests.contract.cli.cli_rig import read_until

ROOT = Path(__file__).parents[2]
LOCK = "click==8.5.0 \\\n    --hash=sha256:ab\nrich==15.0\nold==1 ; python_version < '3'\n# via x==1\n"


def test_setup_progress_counts_packages_found_and_then_installed(tmp_path: Path) -> None:
    (tmp_path / "pip-26.dist-info").mkdir()
    (tmp_path / "lock").write_text(LOCK)
    progress = Progress(tmp_path / "lock", tmp_path)
    assert progress.words() == "0 of 3 packages found"
    progress.take(b"Ignoring old: markers 'python_version < \"3\"' don't match your environment\nColl")
    progress.take(b"ecting click==8.5.0 (from -r lock)\n  Downloading click\n")
    assert progress.words() == "1 of 2 packages found"
    progress.take(b"Requirement already satisfied: rich==15.0 in x\nInstalling collected packages: click\n")
    assert progress.words() == "1 of 2 packages installed"
    (tmp_path / "click-8.5.0.dist-info").mkdir()
    assert progress.words() == "2 of 2 packages installed"


def test_setup_progress_is_one_line_on_a_terminal_and_lines_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    command = [sys.executable, "-m", "scripts.installing", str(tmp_path / "lock"), str(tmp_path)]
    said = b"Collecting click==8.5.0\n"
    piped = subprocess.run(command, cwd=ROOT, input=said, capture_output=True, check=True, timeout=60)
    assert piped.stdout == b"setup: 1 of 3 packages found, 0 s\n"
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=theirs) as process:
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(said)
        process.stdin.flush()
        began_at = time.monotonic()
        read_until(ours, b"\r\x1b[Ksetup: 1 of 3 packages found, ")
        assert time.monotonic() - began_at < 60
        process.stdin.close()
    os.close(ours)
