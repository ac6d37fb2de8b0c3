"""The server of tests that look at shares of queues, and the environment in which the command line finds it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.queues.share_rig import ShareRig


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ShareRig]:
    rig = ShareRig()
    for name, value in (("URL", rig.server.url), ("HOME", str(tmp_path))):
        monkeypatch.setenv(f"MESOS_GPU_{name}", value)
    monkeypatch.setenv("NO_COLOR", "1")
    yield rig
    rig.close()
