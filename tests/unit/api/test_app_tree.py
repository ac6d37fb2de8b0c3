"""Trees of apps and groups after a change."""

import time

import pytest

from mesos_gpu.api.marathon import tree
from mesos_gpu.model.apps.app import App, Group

ROOT = Group("/", (App("/a"),), (Group("/g", (App("/g/b"), App("/g/c"))),))
NEW = (App("/g/c", cmd="new"), App("/z"), App("/g/h/d"), App("/g/e"), App("/other/f"))


def test_tree_with_several_apps_is_that_with_one_after_the_other() -> None:
    expected = ROOT
    for app in NEW:
        expected = tree.with_app(expected, app)
    together = tree.with_apps(ROOT, NEW)
    assert {app.id: app for app in together.all_apps()} == {app.id: app for app in expected.all_apps()}
    assert [app.id for app in together.groups[0].apps] == ["/g/b", "/g/c", "/g/e"]
    assert tree.group_at(together, "/g/h") == Group("/g/h", (App("/g/h/d"),))


@pytest.mark.parametrize(
    ("app", "is_clash"), [("/g", True), ("/g/c/d", True), ("/g/x", False), ("/gg", False), ("/a", False)]
)
def test_tree_in_which_an_app_has_the_id_of_a_group_is_found(app: str, is_clash: bool) -> None:
    assert tree.clash(tree.with_app(ROOT, App(app)), [app]) is is_clash


def test_tree_takes_ten_thousand_apps_of_a_group_at_once() -> None:
    apps = [App(f"/many/a{n}") for n in range(10_000)]
    began = time.process_time()
    root = tree.with_apps(ROOT, apps)
    assert not tree.clash(root, [app.id for app in apps])
    assert time.process_time() - began < 2, "one by one it takes a minute"
    assert len(tree.group_at(root, "/many").apps) == 10_000  # type: ignore[union-attr]
