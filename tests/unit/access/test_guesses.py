"""How wrong proofs slow down who sends them."""

from mesos_gpu.access.guesses import FORGET_S, FREE, MOST_ADDRESS_S, MOST_KEPT, MOST_NAME_S, Guesses


def test_a_few_cost_nothing_and_then_each_costs_twice_as_much() -> None:
    guesses, now, waits = Guesses(), 0.0, []
    for _ in range(FREE + 12):
        wait_s = guesses.wrong("1.2.3.4", "", now)
        waits.append(wait_s)
        now += wait_s
    assert waits[:FREE] == [0.0] * FREE
    assert waits[FREE : FREE + 4] == [1.0, 2.0, 4.0, 8.0]
    assert waits[-1] == MOST_ADDRESS_S
    assert guesses.wait_s("1.2.3.4", "", now + FORGET_S) == 0.0


def test_it_is_forgotten_after_a_while() -> None:
    guesses = Guesses()
    for _ in range(FREE + 1):
        guesses.wrong("1.2.3.4", "", 0.0)
    later = 2 * FORGET_S
    assert guesses.wrong("1.2.3.4", "", later) == 0.0


def test_a_name_that_many_addresses_guess_at_waits_but_not_where_it_was_right() -> None:
    guesses = Guesses()
    guesses.right("7.7.7.7", "ann", 0.0)
    for i in range(FREE + 20):
        guesses.wrong(f"9.9.9.{i}", "ann", 0.0)
    assert 0 < guesses.wait_s("8.8.8.8", "ann", 0.0) <= MOST_NAME_S
    assert guesses.wait_s("7.7.7.7", "ann", 0.0) == 0.0
    assert guesses.wait_s("8.8.8.8", "bob", 0.0) == 0.0


def test_one_name_that_is_right_does_not_clear_its_address_for_guesses_at_others() -> None:
    guesses = Guesses()
    for i in range(FREE + 3):
        guesses.wrong("9.9.9.9", f"name{i}", 0.0)
        guesses.right("9.9.9.9", "mallory", 0.0)
    assert guesses.wait_s("9.9.9.9", "ann", 0.0) > 0


def test_who_was_right_and_guesses_now_waits_as_others_do() -> None:
    guesses = Guesses()
    guesses.right("7.7.7.7", "ann", 0.0)
    waits = [guesses.wrong("7.7.7.7", "ann", 0.0) for _ in range(FREE + 3)]
    assert waits[-1] > 0


def test_all_addresses_of_an_ipv6_network_are_one() -> None:
    guesses = Guesses()
    for i in range(FREE + 1):
        guesses.wrong(f"2001:db8::{i:x}", "", 0.0)
    assert guesses.wait_s("2001:db8::ffff", "", 0.0) > 0
    assert guesses.wait_s("2001:db8:0:1::1", "", 0.0) == 0.0


def test_memory_is_bounded_and_new_addresses_do_not_wash_out_who_waits() -> None:
    guesses = Guesses()
    for _ in range(FREE + 8):
        guesses.wrong("9.9.9.9", "", 0.0)
    for i in range(3 * MOST_KEPT):
        guesses.wrong(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", f"name{i}", 1.0)
        guesses.right(f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}", f"name{i}", 1.0)
    assert len(guesses) <= 3 * MOST_KEPT
    assert guesses.wait_s("9.9.9.9", "", 2.0) > 0
