"""The order of users: examples, and the properties that Slurm's page on Fair Tree promises."""

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.policy.tenancy.fair_tree import Account, compare, ranks


def account(name: str, shares: int, use: int, *children: Account) -> Account:
    return Account(name, shares, use, children)


def test_fair_tree_puts_all_users_of_the_better_queue_first() -> None:
    root = account(
        "", 1, 100,
        account("a", 30, 40, account("greedy", 1, 39), account("modest", 1, 1)),
        account("b", 70, 60, account("busy", 1, 60)),
    )  # fmt: skip
    assert ranks(root) == {"busy": 0, "modest": 1, "greedy": 2}


def test_equal_siblings_share_a_place_and_those_after_them_keep_theirs() -> None:
    root = account("", 1, 4, account("x", 1, 1), account("y", 2, 2), account("z", 1, 2))
    assert ranks(root) == {"x": 0, "y": 0, "z": 2}


def test_children_of_equal_queues_are_compared_as_siblings_are() -> None:
    a = account("a", 1, 10, account("a1", 1, 9), account("a2", 1, 1))
    b = account("b", 1, 10, account("b1", 1, 5), account("b2", 1, 5))
    places = ranks(account("", 1, 20, a, b))
    assert sorted(places, key=places.__getitem__) == ["a2", "b1", "b2", "a1"]


def test_fair_tree_puts_users_without_use_first_and_without_shares_last() -> None:
    root = account("", 1, 1, account("none", 0, 0), account("new", 1, 0), account("old", 5, 1))
    assert ranks(root) == {"new": 0, "old": 1, "none": 2}


LEAVES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4)


@given(st.lists(st.tuples(st.integers(0, 4), LEAVES), min_size=1, max_size=4))
def test_fair_tree_puts_all_below_the_first_sibling_first(
    queues: list[tuple[int, list[tuple[int, int]]]],
) -> None:
    tree = []
    for i, (shares, users) in enumerate(queues):
        below = tuple(Account(f"{i}.{j}", *user) for j, user in enumerate(users))
        tree.append(Account(str(i), shares, sum(user.use for user in below), below))
    places = ranks(Account("", children=tuple(tree)))
    assert len(places) == sum(len(users) for _, users in queues)
    for left in tree:
        for right in tree:
            if compare(left, right) < 0:
                assert max(places[user.name] for user in left.children) < min(
                    places[user.name] for user in right.children
                )
