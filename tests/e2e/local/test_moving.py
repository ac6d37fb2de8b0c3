"""The page for users of Marathon, followed as it is printed: the apps that it moves, and the pods that it names."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mesos_gpu.cli.client import Client
from tests.conftest import wait_until
from tests.documents.blocks import ROOT
from tests.documents.reader import Reader, reading

pytestmark = [pytest.mark.cluster, pytest.mark.on_change("documents"), pytest.mark.timeout(600)]
PAGE: Final = "docs/coming-from/marathon.md"
RECORDED: Final = json.loads((ROOT / "tests/data/marathon/groups.json").read_text())
OTHER: Final = {"id": "/other", "cmd": "sleep 1000", "cpus": 0.1, "mem": 16}
POD: Final = "pod /shop/front/sidecar is ignored: pods are not supported"


def url_of(reader: Reader) -> str:
    return str(json.loads((reader.home / "up.json").read_text())["url"])


def apps_of(client: Client) -> dict[str, dict[str, Any]]:
    listed = client.call("GET", "/v2/apps", dict[str, list[dict[str, Any]]])["apps"]
    return {app["id"]: app for app in listed}


@pytest.fixture
def reader(open_directory: Path) -> Iterator[Reader]:
    """A reader with a cluster that has an app of its own."""
    with reading(open_directory) as reader:
        started = reader.type("mesos-gpu up --detach --agents 2 --gpus 4")
        assert started.returncode == 0, started.stdout
        yield reader


@pytest.fixture
def client(reader: Reader) -> Iterator[Client]:
    with Client(url_of(reader)) as client:
        client.call("POST", "/v2/apps", dict[str, Any], body=OTHER)
        yield client


def test_marathon_page_moves_nested_groups_and_names_their_pods(reader: Reader, client: Client) -> None:
    typed = {done.args: done.stdout for done in reader.follow(PAGE)}
    assert POD in typed["mesos-gpu diff all.json"]
    assert POD in typed["mesos-gpu app create all.json"]
    apps = apps_of(client)
    assert set(apps) == {"/other", "/top", "/shop/web", "/shop/store/db", "/shop/front/ui"}
    assert sorted(apps["/shop/front/ui"]["dependencies"]) == ["/shop/store", "/shop/web"]
    wait_until(
        "those without files to fetch run",
        lambda: {"/other", "/top"} <= {id for id, app in apps_of(client).items() if app["tasksRunning"] == 1},
    )
    assert POD in reader.type("mesos-gpu app update all.json --force --yes").stdout
    assert set(apps_of(client)) == set(apps), "nothing is there twice, and nothing is gone"


def large() -> bytes:
    """The recorded dump with so many further apps in nested groups that it has more than 1 MiB."""
    app = RECORDED["groups"][0]["apps"][0]
    groups = [
        {
            "id": f"/many/g{group}",
            "apps": [app | {"id": f"/many/g{group}/a{n}", "instances": 0} for n in range(300)],
            "groups": [],
        }
        for group in range(5)
    ]
    whole = RECORDED | {"groups": [*RECORDED["groups"], {"id": "/many", "apps": [], "groups": groups}]}
    return json.dumps(whole).encode()


@pytest.mark.long
def test_marathon_page_moves_more_apps_than_fit_a_megabyte() -> None:
    groups = large()
    assert len(groups) > 1 << 20
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-test-") as parent:
        Path(parent).chmod(0o755)
        with reading(Path(parent), groups) as reader:
            started = reader.type("mesos-gpu up --detach --agents 2 --gpus 4")
            assert started.returncode == 0, started.stdout
            typed = {done.args: done.stdout for done in reader.follow(PAGE)}
            assert POD in typed["mesos-gpu app create all.json"]
            with Client(url_of(reader)) as client:
                assert len(apps_of(client)) == 4 + 5 * 300
