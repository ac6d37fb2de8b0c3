"""The table of rights is what is so: each verb of each route, tried by all whom it tells of, and none is missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Route

from mesos_gpu.api.http.rights import rules_of
from tests.contract.access.scene import Scene
from tests.contract.access.table import ROWS, Row, page

ROOT = Path(__file__).parents[3]
BELOW = "/{path:path}"
ANSWERED_404 = ("/v2", "/v2" + BELOW)  # whatever is below is none of Marathon's routes


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("table"))
    yield scene
    scene.close()


def status(scene: Scene, row: Row, name: str | None) -> int:
    """What somebody gets who sends the row's request, about something that was made for it."""
    asked = row.ask(scene)
    verb = row.verb.split()[-1]
    response = scene.call(name, verb, asked.path, stream=True, allow_redirects=False, **asked.more)
    response.close()
    return response.status_code


def is_refused(got: int, admins: int) -> bool:
    """What one may not know of is as if it were not there; where it is not there for an admin, it is not there."""
    return got in (401, 403) or (got in (404, 422) and got != admins)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.verb} {row.route}")
def test_route_is_for_the_callers_of_its_row(scene: Scene, row: Row) -> None:
    got = scene.as_each(lambda name: status(scene, row, name))
    assert 500 not in got.values()
    assert got["admin"] not in (401, 403)
    is_so = "".join("-" if is_refused(each, got["admin"]) else "x" for each in got.values())
    assert is_so == row.whom, got
    assert (got["nobody"] == 401) == (row.whom[0] == "-")


def test_verbs_of_routes_have_one_row_each(scene: Scene) -> None:
    served = {
        (route.path.removesuffix(BELOW), verb)
        for route in scene.api.routes
        if isinstance(route, Route)
        for verb in rules_of(route)
    }
    rows = [(row.route, row.verb) for row in ROWS]
    assert sorted(rows) == sorted(set(rows)), "a row stands there twice"
    assert served - set(rows) == set(), "these have no row in tests/contract/access/table.py"
    assert set(rows) - served == set(), "these are not there any more"


def test_the_page_of_rights_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/rights.md").read_text(encoding="utf-8") == page(), "run: make docs"


def test_routes_have_rules_of_rights(scene: Scene, tmp_path: Path) -> None:
    for route in scene.api.routes:
        assert isinstance(route, Route)
        assert rules_of(route) or route.path in ANSWERED_404, route.path


def test_a_task_of_anothers_app_is_not_ended_by_its_id(scene: Scene) -> None:
    path, task = scene.task()
    answer = scene.call("carl", "POST", "/v2/tasks/delete?scale=true", json={"ids": [task]})
    assert (answer.status_code, answer.json().get("tasks", [])) == (200, [])
    left = scene.made("boss", "GET", f"/v2/apps{path}/tasks").json()["tasks"]
    assert [(each["id"], each["state"]) for each in left] == [(task, "TASK_RUNNING")]
    scene.clear()
