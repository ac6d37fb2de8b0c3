"""--access-file: it is in force where nobody has written a document, and what was applied later wins."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mesos_gpu.engine.events import AccessChanged
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import BadConfiguration
from mesos_gpu.model.access.document import AccessDocument, Binding
from mesos_gpu.scheduler.access.first import begin_with, read_first
from mesos_gpu.scheduler.daemon import Daemon
from tests.doubles.fake_driver import FakeClock, FakeDriver, RecordingStore

FIRST = AccessDocument(bindings=(Binding(("ann",), (), ("admin",)),))


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    store = RecordingStore()
    daemon = Daemon(store, store.load(), FakeDriver(), FakeClock(), Settings.of("e", "m"))
    daemon.start()
    yield daemon
    daemon.stop()


def test_access_file_is_the_first_version_and_taken_once(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        begin_with(FIRST, daemon)
    latest = daemon.access
    assert (latest.version, latest.by, latest.bindings) == (1, "--access-file", FIRST.bindings)
    assert not [each for each in caplog.records if each.levelno > logging.INFO]


def test_access_file_yields_to_a_later_document_and_the_log_says_so(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.request(AccessChanged(replace(FIRST, unix_users={"ann": "a"}, by="bob"), 0)).result(60)
    begin_with(FIRST, daemon)
    assert daemon.access.version == 1
    assert "--access-file differs from the access rules in force (version 1 by bob)" in caplog.text


def test_access_file_without_an_admin_is_warned_about(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    begin_with(AccessDocument(bindings=(Binding(("ann",), (), ("user",)),)), daemon)
    assert "only root on this host may change access rules" in caplog.text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        (b"\xff", "it is not UTF-8"),
        (b"- a", "is not an object of roles and bindings"),
        (b"bindings: [{names: [ann], roles: [adm]}]", "/bindings/0/roles/0: there is no role"),
        (b"a: [", "is neither JSON nor YAML"),
    ],
)
def test_access_file_that_is_empty_ends_the_start(tmp_path: Path, text: bytes | None, words: str) -> None:
    path = tmp_path / "access.yaml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(BadConfiguration, match=words):
        read_first(path)


def test_access_file_is_read_as_it_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "access.yaml"
    path.write_text("version: 7\nbindings:\n- names: [ann]\n  roles: [admin]\n")
    assert read_first(path) == replace(FIRST, version=7)
