"""Proofs in headers of a request, and the order in which they count."""

from base64 import b64encode
from ipaddress import ip_network

import pytest

from mesos_gpu.access import name_maps, proofs
from mesos_gpu.access.proofs import WrongProof
from mesos_gpu.model.access.caller import Caller, Proof

TRUSTED = (ip_network("10.0.0.0/30"), ip_network("fd00::/64"))


def test_proof_authorization_header_is_a_scheme_and_a_value() -> None:
    header = proofs.authorization(["BEARER  x.y "])
    assert header
    assert (header.scheme, header.value) == ("bearer", "x.y")
    assert "x.y" not in repr(header)
    assert proofs.authorization([]) is None
    assert proofs.authorization(["token=x"]) == proofs.Authorization("bearer", "x")


@pytest.mark.parametrize("values", [["Bearer a", "Bearer a"], ["Bearer"], [""], [" "]])
def test_proof_header_that_is_malformed_is_wrong(values: list[str]) -> None:
    with pytest.raises(WrongProof):
        proofs.authorization(values)


def test_proof_http_basic_is_base64_of_name_and_password() -> None:
    given = proofs.basic(b64encode("änn:a:b".encode()).decode())
    assert (given.name, given.password) == ("änn", "a:b")
    assert "a:b" not in repr(given)


@pytest.mark.parametrize(
    "value", ["", "x", "!!!!", b64encode(b"no colon").decode(), b64encode(b"\xff:\xff").decode()]
)
def test_proof_that_is_no_http_basic_is_wrong(value: str) -> None:
    with pytest.raises(WrongProof, match="RFC 7617"):
        proofs.basic(value)


@pytest.mark.parametrize("name", ["", " ann", "ann\n", "a\x1b[31m", "a" * 257, "a\u202eb"])
def test_proof_name_must_be_printable(name: str) -> None:
    assert not proofs.may_be_name(name)


def test_proof_order_has_each_proof_once() -> None:
    assert proofs.order("socket, token") == (Proof.SOCKET, Proof.TOKEN)
    assert proofs.order("none") == ()
    for wrong in ("", "token,token", "none,token", "open", "cookie"):
        with pytest.raises(ValueError, match=r"names a proof twice|is not one of"):
            proofs.order(wrong)


def test_proof_first_in_the_order_wins() -> None:
    by_token, by_socket = Caller("ann", proof=Proof.TOKEN), Caller("root", proof=Proof.SOCKET)
    assert proofs.first((Proof.SOCKET, Proof.TOKEN), [by_token, by_socket]) is by_socket
    assert proofs.first(proofs.ORDER, [by_socket, by_token]) is by_token
    assert proofs.first(proofs.ORDER, []) is None


@pytest.mark.parametrize(
    ("peer", "headers", "address"),
    [
        ("1.2.3.4", ["9.9.9.9"], "1.2.3.4"),
        ("10.0.0.1", ["9.9.9.9"], "9.9.9.9"),
        ("10.0.0.1", ["6.6.6.6, 9.9.9.9"], "9.9.9.9"),
        ("10.0.0.1", ["6.6.6.6", "9.9.9.9, 10.0.0.2"], "9.9.9.9"),
        ("10.0.0.1", ["6.6.6.6, , 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["evil"], "10.0.0.1"),
        ("10.0.0.1", ["9.9.9.9:4711"], "9.9.9.9"),
        ("10.0.0.1", ['"[2001:db8::1]:80"'], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["9.9.9.9"], "9.9.9.9"),
        ("fd00::5", ["9.9.9.9"], "9.9.9.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("", ["6.6.6.6, 9.9.9.9"], "9.9.9.9"),
    ],
)
def test_forwarded_hops_are_believed_from_the_right_while_trusted(
    peer: str, headers: list[str], address: str
) -> None:
    assert proofs.forwarded_from(peer, headers, TRUSTED) == address


@pytest.mark.parametrize(
    ("text", "name", "mapped"),
    [
        ("*@example.org=*", "ann@example.org", "ann"),
        ("*@example.org=*", "ann@example.org.evil", None),
        ("*@example.org=*", "@example.org", None),
        ("spiffe://x/user/*=team-*", "spiffe://x/user/ann", "team-ann"),
        ("CN=ann,O=x=ann", "CN=ann,O=x", "ann"),
        ("*=guest", "whoever", "guest"),
        ("aXa*aXa=*", "aXaXa", None),
    ],
)
def test_name_map_keeps_the_text_of_the_star(text: str, name: str, mapped: str | None) -> None:
    assert name_maps.mapped([name_maps.parse(text)], name) == mapped


@pytest.mark.parametrize("text", ["x", "=x", "x=", "**=x", "a=*", "*=**"])
def test_name_map_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not PATTERN=NAME|has a \*"):
        name_maps.parse(text)


def test_name_map_leaves_names_alone_if_absent_and_drops_unmapped_names() -> None:
    assert name_maps.mapped([], "ann") == "ann"
    maps = [name_maps.parse("bob=robert"), name_maps.parse("*@x=*")]
    assert [name_maps.mapped(maps, name) for name in ("bob", "ann@x", "eve")] == ["robert", "ann", None]
