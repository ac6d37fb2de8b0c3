"""Allotment of the tasks of one job to nodes."""

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.policy.room.allotment import allot

ROOM = st.lists(st.integers(0, 5), max_size=6)


def test_allotment_fills_the_first_nodes_first() -> None:
    assert allot(5, [3, 3, 3]) == [3, 2, 0]


def test_allotment_in_turn_gives_each_node_one_before_any_two() -> None:
    assert allot(4, [3, 1, 3], in_turn=True) == [2, 1, 1]


def test_allotment_asks_a_node_that_refuses_again_after_another_took_one() -> None:
    taken: list[int] = []

    def balanced(i: int) -> bool:
        if taken.count(i) > min(taken.count(0), taken.count(1)):
            return False
        taken.append(i)
        return True

    assert allot(4, [4, 4], balanced) == [2, 2]
    assert taken == [0, 1, 0, 1]


def test_allotment_leaves_over_what_no_node_takes() -> None:
    assert allot(3, [2, 2], lambda i: False) == [0, 0]
    assert allot(9, [2, 2]) == [2, 2]


@given(st.integers(0, 12), ROOM, st.booleans())
def test_allotment_shares_out_all_that_there_is_room_for(tasks: int, room: list[int], in_turn: bool) -> None:
    counts = allot(tasks, room, in_turn=in_turn)
    assert sum(counts) == min(tasks, sum(room))
    assert all(count <= most for count, most in zip(counts, room, strict=True))
    if not in_turn:
        assert counts == allot(tasks, room, lambda i: True), "with nothing that binds it is the same"
