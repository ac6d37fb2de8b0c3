"""Apps through the daemon: requests are made on its thread, and what they do is saved before they are answered."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mesos_gpu.adapters.sqlite_store import SqliteStore
from mesos_gpu.api.asking import apps_change, deployment_undo
from mesos_gpu.engine import events as ev
from mesos_gpu.engine.reading.apps import known_versions
from mesos_gpu.engine.settings import Settings
from mesos_gpu.errors import AppLocked, BadConfiguration, Conflict, NotFound
from mesos_gpu.model.apps.app import App, Group, SecretRef
from mesos_gpu.scheduler.daemon import Daemon
from tests.doubles.fake_driver import FakeClock, FakeDriver

WEB = App("/web", cmd="serve", env={"A": "1"}, port_definitions=())


def daemon_of(path: Path) -> Daemon:
    store = SqliteStore(path)
    daemon = Daemon(store, store.load(), FakeDriver(), FakeClock(), Settings.of("executor", "monitor"))
    daemon.start()
    daemon.put(ev.Registered("fw", "http://m"))
    return daemon


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def daemon(path: Path) -> Iterator[Daemon]:
    daemon = daemon_of(path)
    yield daemon
    daemon.stop()


def with_app(app: App) -> Group:
    return Group("/", (app,))


def test_daemon_app_change_makes_a_deployment(daemon: Daemon) -> None:
    made = daemon.request(apps_change(lambda root: replace(root, apps=(WEB,)))).result(60)
    assert made is not None
    assert [action.kind.value for step in made.plan.steps for action in step] == [
        "StartApplication",
        "ScaleApplication",
    ]
    assert daemon.read(lambda view: (view.catalog.root.apps, list(view.deployments))).result(60) == (
        (WEB,),
        [made.id],
    )
    assert daemon.request(apps_change(lambda root: root)).result(60) is None, "nothing changes"


def test_daemon_app_refusal_changes_no_app(daemon: Daemon) -> None:
    def refuse(root: Group) -> Group:
        raise Conflict("An app with id [/web] already exists.", remedy="PUT it")

    with pytest.raises(Conflict):
        daemon.request(apps_change(refuse)).result(60)
    daemon.request(apps_change(lambda _: with_app(WEB))).result(60)
    with pytest.raises(AppLocked):
        daemon.request(apps_change(lambda _: with_app(replace(WEB, cmd="other")))).result(60)
    assert daemon.read(lambda view: view.catalog.root.apps).result(60) == (WEB,)
    with pytest.raises(NotFound):
        daemon.request(deployment_undo("none")).result(60)


def test_daemon_refuses_apps_that_cannot_run(daemon: Daemon) -> None:
    with pytest.raises(BadConfiguration, match=r"/web: .*secret"):
        daemon.request(apps_change(lambda _: with_app(replace(WEB, env={"B": SecretRef("b")})))).result(60)
    assert daemon.read(lambda view: view.catalog.root).result(60) == Group("/")


def test_daemon_apps_and_deployments_survive_a_restart(path: Path) -> None:
    daemon = daemon_of(path)
    first = daemon.request(apps_change(lambda _: with_app(WEB))).result(60)
    assert first is not None
    second = daemon.request(deployment_undo(first.id)).result(60)
    assert second is not None
    before = daemon.read(
        lambda view: (view.catalog.root, dict(view.catalog.versions), dict(view.deployments))
    ).result(60)
    daemon.stop()
    again = daemon_of(path)
    try:
        after = again.read(
            lambda view: (view.catalog.root, dict(view.catalog.versions), dict(view.deployments))
        ).result(60)
        assert after == before
        assert again.read(lambda view: [app for _, app in known_versions(view, "/web")]).result(60) == [WEB]
    finally:
        again.stop()
