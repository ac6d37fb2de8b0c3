"""Resources that are left, and calls that reserve them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.model.nodes.role import Role
from mesos_gpu.wire.mesos.operator import reserving
from mesos_gpu.wire.mesos.operator.quotas import roles_of, update_quota, with_limit


def scalar(name: str, amount: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "SCALAR", "scalar": {"value": amount}, **more}


def ports(*spans: tuple[int, int], **more: Any) -> dict[str, Any]:
    ranges = [{"begin": begin, "end": end} for begin, end in spans]
    return {"name": "ports", "type": "RANGES", "ranges": {"range": ranges}, **more}


def test_reservable_resources_exclude_allocations_of_any_role() -> None:
    total = [scalar("cpus", 8), scalar("gpus", 4), ports((10, 19), (30, 30))]
    held = [
        scalar("cpus", 0.3, allocation_info={"role": "a"}),
        scalar("cpus", 0.1, allocation_info={"role": "b"}),
        scalar("gpus", 4, allocation_info={"role": "a"}),
        ports((12, 13), (30, 30), allocation_info={"role": "a"}),
    ]
    assert reserving.less(total, held) == [scalar("cpus", 7.6), ports((10, 11), (14, 19))]


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_reservable_ports_are_a_difference_of_sets(total: set[int], held: set[int]) -> None:
    held &= total
    left = reserving.less([ports(*((p, p) for p in total))], [ports(*((p, p) for p in held))])
    seen = [p for each in left for r in each["ranges"]["range"] for p in range(r["begin"], r["end"] + 1)]
    assert sorted(seen) == sorted(total - held)


def test_reservable_resources_exclude_reservations() -> None:
    reserved = scalar("gpus", 2, reservations=[{"type": "STATIC", "role": "x"}])
    assert [reserving.is_free(each) for each in (scalar("gpus", 1), ports((1, 2)), reserved)] == [
        True,
        True,
        False,
    ]
    assert not reserving.is_free(scalar("cpus", 1, revocable={}))
    assert not reserving.is_free(scalar("disk", 1, disk={"source": {"type": "MOUNT"}}))


def test_reservation_names_its_pool() -> None:
    call = reserving.reserve("a-1", [scalar("gpus", 2)], "gpu", "op", "big")
    (made,) = call["reserve_resources"]["resources"]
    assert reserving.pool_of(made) == "big"
    assert made["reservations"][0]["principal"] == "op"
    assert reserving.pool_of(scalar("gpus", 2)) is None
    assert (
        "principal"
        not in reserving.reserve("a", [scalar("gpus", 1)], "gpu", None, "p")["reserve_resources"][
            "resources"
        ][0]["reservations"][0]
    )
    left = reserving.less([made], [])
    assert reserving.unreserve("a-1", left)["unreserve_resources"]["resources"] == [made]


def test_quota_call_changes_the_limit_of_gpus_alone() -> None:
    told = roles_of([{
        "name": "r", "weight": 2.5, "frameworks": ["f"],
        "quota": {"limit": {"cpus": 8, "gpus": 2}, "guarantee": {"mem": 64}, "consumed": {"gpus": 1, "ports": "[1-2]"}},
    }, {"name": "*", "resources": {"gpus": 3}}])  # fmt: skip
    assert told["r"] == Role("r", 2.5, {"cpus": 8.0, "gpus": 2.0}, {"mem": 64.0}, {"gpus": 1.0}, ("f",))
    assert told["*"].used == {"gpus": 3.0}
    more, none = with_limit(told["r"], 5), with_limit(told["r"], None)
    assert more == {
        "role": "r", "limits": {"cpus": {"value": 8.0}, "gpus": {"value": 5.0}}, "guarantees": {"mem": {"value": 64.0}}
    }  # fmt: skip
    assert none["limits"] == {"cpus": {"value": 8.0}}
    assert update_quota([more], force=True)["update_quota"] == {"force": True, "quota_configs": [more]}
