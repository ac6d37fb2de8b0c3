"""Every command of the other pages: on a cluster that they share, but for those that start one."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mesos_gpu.cli.client import Client
from tests.clients import kill_all
from tests.documents.blocks import blocks, documents
from tests.documents.reader import Reader, reading

pytestmark = [pytest.mark.cluster, pytest.mark.on_change("documents"), pytest.mark.timeout(600)]


def words(document: str) -> str:
    """All that is typed for a document."""
    return "\n".join(command.text for block in blocks(document) for command in block.commands)


PAGES = [page for page in documents() if words(page) and page not in ("README.md", "docs/guide.md")]
OWN = [page for page in PAGES if "mesos-gpu up" in words(page)]


@pytest.fixture(scope="module")
def shared() -> Iterator[Reader]:
    parent = Path(tempfile.mkdtemp(prefix="mesos-gpu-test-"))
    parent.chmod(0o755)
    with reading(parent) as reader:
        started = reader.type("mesos-gpu up --detach --agents 4 --gpus 4")
        assert started.returncode == 0, started.stdout
        yield reader
    shutil.rmtree(parent)


@pytest.fixture
def reader(shared: Reader) -> Iterator[Reader]:
    """Without jobs and apps of pages before, and with the queues of the start; asked for without a command for each,
    which takes longer than its answer."""
    yield shared
    with Client(json.loads((shared.home / "up.json").read_text())["url"]) as client:
        kill_all(client)
        nothing: dict[str, object] = {"id": "/", "apps": [], "groups": []}
        client.call("PUT", "/v2/groups", dict[str, object], {"force": True}, body=nothing)
        version = client.call("GET", "/v1/queues", dict[str, object])["version"]
        client.call("PUT", "/v1/queues", dict[str, object], body={"version": version, "queues": {}})


@pytest.mark.parametrize("page", [page for page in PAGES if page not in OWN])
def test_commands_of_a_page_work(page: str, reader: Reader) -> None:
    assert reader.follow(page)


@pytest.mark.parametrize("page", OWN)
def test_commands_of_a_page_work_on_its_own_cluster(page: str, open_directory: Path) -> None:
    with reading(open_directory) as reader:
        assert reader.follow(page)


def test_pages_with_commands_are_found() -> None:
    assert "docs/accounts.md" in PAGES
