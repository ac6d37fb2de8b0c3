"""Ids of apps and groups: relative ones stay inside the root."""

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.wire.marathon.app import decode_app
from mesos_gpu.wire.marathon.group import group_of
from mesos_gpu.wire.marathon.paths import absolute, problem_of
from mesos_gpu.wire.marathon.problems import Detail, Problems

STEPS = st.lists(st.sampled_from(["a", "b", "..", ".", ""]), max_size=8).map("/".join)


def test_marathon_ids_are_resolved_inside_the_root() -> None:
    assert absolute("../db", "/shop") == "/db"
    assert absolute("../../x/../db", "/shop/web") == "/db"
    assert absolute("./db/.", "/shop") == "/shop/db"
    assert absolute("/shop/../db") == "/db"
    assert not problem_of(absolute("..", "/shop"))


@given(STEPS, st.sampled_from(["/", "/shop", "/shop/web"]))
def test_marathon_id_above_the_root_is_invalid(path: str, base: str) -> None:
    depth, lowest = (0 if path.startswith("/") else len([each for each in base.split("/") if each])), 0
    for step in path.split("/"):
        depth += -1 if step == ".." else 0 if step in ("", ".") else 1
        lowest = min(lowest, depth)
    id = absolute(path, base)
    assert bool(problem_of(id)) == (lowest < 0), id
    assert lowest < 0 or ".." not in id
    assert absolute(id) == id


def why_not(decoded: object) -> str:
    assert isinstance(decoded, Problems), decoded
    details = [each for each in decoded.details if isinstance(each, Detail)]
    return "; ".join(f"{each.path}: {error}" for each in details for error in each.errors)


def test_apps_and_groups_whose_ids_climb_are_refused() -> None:
    assert "/id: '/../x' is above the root" in why_not(decode_app(b'{"id":"/x/../../x","cmd":"x"}'))
    assert "/id: '/../x' is above the root" in why_not(decode_app(b'{"cmd":"x"}', id_from_path="/../x"))
    app = b'{"id":"/a","cmd":"x","dependencies":["b","/../c"]}'
    assert "/dependencies(1): '/../c' is above the root" in why_not(decode_app(app))
    assert "/id: '/../g' is above the root" in why_not(group_of({"id": "../g"}))
    inner = {"id": "/g", "apps": [{"id": "../../x", "cmd": "x"}]}
    assert "/apps(0)/id: '/../x' is above the root" in why_not(group_of(inner))
    outer = {"id": "/g", "dependencies": ["../../h"]}
    assert "/dependencies(0): '/../h' is above the root" in why_not(group_of(outer))
