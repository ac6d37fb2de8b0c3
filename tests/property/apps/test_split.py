"""Weights of servers: shares of apps hold, whatever their numbers of tasks."""

from hypothesis import given
from hypothesis import strategies as st

from mesos_gpu.policy.apps.split import HIGHEST, server_weights

NUMBERS = st.one_of(st.integers(0, 5), st.integers(0, 1000))
APPS = st.dictionaries(st.sampled_from("abcdefgh"), st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=8)


@given(APPS)
def test_split_gives_every_app_its_share(asked: dict[str, tuple[int, int]]) -> None:
    weights = {app: weight for app, (weight, _) in asked.items()}
    counts = {app: count for app, (_, count) in asked.items()}
    server_shares = server_weights(weights, counts)
    assert {app: len(each) for app, each in server_shares.items()} == counts
    assert all(0 <= weight <= HIGHEST for each in server_shares.values() for weight in each)
    given_to = {app: sum(each) for app, each in server_shares.items()}
    serve = {app: weight for app, weight in weights.items() if weight and counts[app]}
    assert {app for app, total in given_to.items() if total} <= set(serve)
    for app, weight in serve.items():
        assert abs(given_to[app] / sum(given_to.values()) - weight / sum(serve.values())) <= 0.01
        assert max(server_shares[app]) - min(server_shares[app]) <= 1


def test_servers_of_an_app_are_alike_if_that_can_be() -> None:
    assert server_weights({"a": 90, "b": 10}, {"a": 1, "b": 1}) == {"a": [252], "b": [28]}
    assert server_weights({"a": 1, "b": 1}, {"a": 1, "b": 5}) == {"a": [255], "b": [51] * 5}
    assert server_weights({"a": 1, "b": 1}, {"a": 2, "b": 0}) == {"a": [256, 256], "b": []}
    assert server_weights({"a": 99, "b": 1}, {"a": 1, "b": 100})["b"].count(0) > 90
    assert server_weights({"a": 1, "b": 0}, {"a": 0, "b": 1}) == {"a": [], "b": [0]}
