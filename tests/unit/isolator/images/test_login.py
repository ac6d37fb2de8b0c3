"""Logins of an image secret: which forms are read, and which registry gets which login."""

import base64
import json
from typing import Any

import pytest

from isolator.images.login import Login, Logins


def auth(pair: str) -> dict[str, str]:
    return {"auth": base64.b64encode(pair.encode()).decode()}


def parse(**auths: Any) -> Logins:
    return Logins.parse(json.dumps({"auths": auths, "credsStore": "x"}).encode())


@pytest.mark.parametrize(
    ("entry", "login"),
    [
        (auth("ann:pa:ss"), Login("ann", "pa:ss")),
        (auth("$oauthtoken:key\0\0"), Login("$oauthtoken", "key")),
        ({"username": "ann", "password": "pass"}, Login("ann", "pass")),
        ({**auth("ann:"), "identitytoken": "long"}, Login("ann", "", "long")),
    ],
)
def test_login_is_read_in_each_form_that_docker_writes(entry: Any, login: Login) -> None:
    assert parse(**{"reg.example": entry}).find("reg.example", "app") == login


@pytest.mark.parametrize(
    ("key", "host"),
    [
        ("https://index.docker.io/v1/", ""),
        ("docker.io", "index.docker.io"),
        ("registry-1.docker.io", "docker.io"),
        ("REG.example:5000", "reg.example:5000"),
        ("http://reg.example/v2/", "reg.example"),
    ],
)
def test_login_is_found_by_each_name_of_its_registry(key: str, host: str) -> None:
    assert parse(**{key: auth("a:b")}).find(host, "app") == Login("a", "b")


def test_login_goes_to_its_own_registry_and_repositories_only() -> None:
    logins = parse(
        **{
            "reg.example": auth("all:1"),
            "reg.example/team": auth("team:2"),
            "other.example/team": auth("o:3"),
        }
    )
    assert logins.hosts == ("other.example", "reg.example")
    assert logins.find("reg.example", "app") == Login("all", "1")
    assert logins.find("reg.example", "team/deep/app") == Login("team", "2")
    assert logins.find("reg.example", "teams/app") == Login("all", "1")
    for host, repository in (
        ("reg.example:443", "app"), ("evil.example", "reg.example/app"), ("", "reg.example/team/app"),
        ("other.example", "app"), ("reg.example.evil.example", "app"),
    ):  # fmt: skip
        assert logins.find(host, repository) is None


@pytest.mark.parametrize(
    "value",
    [
        b"", b"hunter2", b"ann:hunter2", b"{", b"[]", b'{"auths": []}', b'{"auths": {}}',
        b'{"auths": {"a": "hunter2"}}',
        b'{"auths": {"a": {}}}', b'{"auths": {"a": {"auth": "hunter2"}}}', b'{"auths": {"a": {"auth": 2}}}',
        b'{"auths": {"": {"auth": "YTpi"}}}', b'{"auths": {"a": {"username": ["hunter2"], "password": "x"}}}',
        b'{"auths": {"a": {"username": "hunter2"}}}', b"\xff",
    ],
)  # fmt: skip
def test_secret_of_another_form_is_refused_without_its_words(value: bytes) -> None:
    with pytest.raises(ValueError, match="docker login") as caught:
        Logins.parse(value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_password_is_in_no_text_of_a_login() -> None:
    logins = parse(a=auth("ann:hunter2"))
    assert "hunter2" not in repr((logins, logins.find("a", "b")))
    assert "ann" not in repr(logins.find("a", "b"))
