"""Claims of a token of OpenID Connect, rule by rule."""

import pytest

from mesos_gpu.access.claims import MAX_GROUPS, NameClaim, Rules, judge
from mesos_gpu.access.proofs import WrongProof

NOW = 1_000_000.0
RULES = Rules("https://id", frozenset({"gpu"}), frozenset({"cli"}))
GOOD: dict[str, object] = {
    "iss": "https://id",
    "aud": "gpu",
    "iat": NOW - 10,
    "exp": NOW + 300,
    "sub": "0001",
    "preferred_username": "ann",
}


def changed(**more: object) -> dict[str, object]:
    return {name: value for name, value in {**GOOD, **more}.items() if value is not None}


def test_claims_give_a_name_groups_and_expiry() -> None:
    proved = judge(changed(groups=["a", "b"]), RULES, NOW)
    assert (proved.name, proved.groups, proved.until) == ("ann", frozenset("ab"), NOW + 360)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"iss": "https://id/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": ["https://id"]}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": {"gpu": 1}}, "another audience"),
        ({"aud": ["gpu", 1]}, "another audience"),
        ({"aud": ["gpu"] * 33}, "another audience"),
        ({"aud": ["gpu", "mail"]}, "several audiences"),
        ({"azp": "mail"}, "issued to a client"),
        ({"azp": 1}, "issued to a client"),
        ({"azp": ["gpu"]}, "issued to a client"),
        ({"exp": None}, "claim exp"),
        ({"exp": "1000300"}, "claim exp"),
        ({"exp": True}, "claim exp"),
        ({"exp": float("inf")}, "claim exp"),
        ({"exp": 1e300}, "claim exp"),
        ({"iat": None}, "claim iat"),
        ({"iat": -1}, "claim iat"),
        ({"nbf": "now"}, "claim nbf"),
        ({"exp": NOW - 60}, "has expired"),
        ({"iat": NOW + 61}, "not valid yet"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"exp": NOW + 86_400}, "is valid for longer"),
        ({"iat": 0}, "is valid for longer"),
        ({"preferred_username": None}, "no name"),
        ({"preferred_username": ""}, "no name"),
        ({"preferred_username": ["ann"]}, "no name"),
        ({"preferred_username": "ann\x1b[2J"}, "has no valid name"),
        ({"preferred_username": " ann"}, "has no valid name"),
        ({"preferred_username": "a" * 257}, "has no valid name"),
        ({"groups": {"admins": True}}, "not a list"),
        ({"groups": ["a", 1]}, "not a list"),
        ({"groups": ["a"] * (MAX_GROUPS + 1)}, "not a list"),
        ({"groups": [""]}, "invalid group name"),
        ({"groups": ["a\n"]}, "invalid group name"),
    ],
)
def test_claims_with_one_wrong_value_prove_nothing(more: dict[str, object], why: str) -> None:
    with pytest.raises(WrongProof) as caught:
        judge(changed(**more), RULES, NOW)
    assert why in caught.value.what
    assert not caught.value.guessed


@pytest.mark.parametrize(
    "more",
    [
        {"aud": ["gpu"]},
        {"aud": ["gpu", "mail"], "azp": "gpu"},
        {"azp": "cli"},
        {"exp": NOW - 59},
        {"iat": NOW + 59},
        {"nbf": NOW + 59},
        {"exp": NOW + 86_390},
    ],
)
def test_claims_within_the_rules_prove_a_name(more: dict[str, object]) -> None:
    assert judge(changed(**more), RULES, NOW).name == "ann"


def test_claims_must_have_the_further_required_values() -> None:
    rules = Rules("https://id", frozenset({"gpu"}), required={"hd": "example.org"})
    assert judge(changed(hd="example.org"), rules, NOW).name == "ann"
    for value in (None, "example.com", ["example.org"]):
        with pytest.raises(WrongProof, match="claim hd"):
            judge(changed(hd=value), rules, NOW)


def test_claims_address_is_a_name_once_it_is_verified() -> None:
    rules = Rules("https://id", frozenset({"gpu"}), name=NameClaim.EMAIL)
    for verified in (None, False, "true", 1):
        with pytest.raises(WrongProof, match="not verified"):
            judge(changed(email="a@b.c", email_verified=verified), rules, NOW)
    assert judge(changed(email="a@b.c", email_verified=True), rules, NOW).name == "a@b.c"


def test_claims_prefixes_separate_names_and_groups_from_other_proofs() -> None:
    rules = Rules(
        "https://id", frozenset({"gpu"}), name=NameClaim.SUBJECT, name_prefix="id:", groups_prefix="id-"
    )
    proved = judge(changed(groups="admins"), rules, NOW)
    assert (proved.name, proved.groups) == ("id:0001", frozenset({"id-admins"}))
    with pytest.raises(WrongProof):
        judge(changed(sub=""), rules, NOW)


def test_claims_without_groups_give_no_groups() -> None:
    rules = Rules("https://id", frozenset({"gpu"}), groups="")
    assert judge(changed(groups=["admins"]), rules, NOW).groups == frozenset()
