"""Accounts of an image, by the highest layer that has a say."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isolator.host.not_started import NotStarted
from isolator.runs.own_run import _accounts, _user_in

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: whiteouts are nodes"),
]
WEB = "web:x:4321:4322::/:/bin/sh\n"


def write(layer: Path, text: str = WEB) -> None:
    (layer / "etc").mkdir(parents=True)
    (layer / "etc/passwd").write_text(text)


def hide_file(layer: Path) -> None:
    (layer / "etc").mkdir(parents=True)
    os.mknod(layer / "etc/passwd", 0o020000, os.makedev(0, 0))


def hide_directory(layer: Path) -> None:
    layer.mkdir()
    os.mknod(layer / "etc", 0o020000, os.makedev(0, 0))


def make_opaque(layer: Path) -> None:
    (layer / "etc").mkdir(parents=True)
    os.setxattr(layer / "etc", "trusted.overlay.opaque", b"y")


def link_file(layer: Path) -> None:
    (layer / "etc").mkdir(parents=True)
    (layer / "etc/passwd").symlink_to("/etc/group")


def link_directory(layer: Path) -> None:
    layer.mkdir()
    (layer / "etc").symlink_to("/etc")


def replace_by_file(layer: Path) -> None:
    layer.mkdir()
    (layer / "etc").touch()


@pytest.mark.parametrize(
    "hide", [hide_file, hide_directory, make_opaque, link_file, link_directory, replace_by_file]
)
def test_accounts_that_a_higher_layer_hides_are_not_used(
    open_directory: Path, hide: Callable[[Path], None]
) -> None:
    place = open_directory / f"accounts-{hide.__name__}"
    write(place / "low")
    hide(place / "high")
    layers = [str(place / "low"), str(place / "high")]
    with pytest.raises(NotStarted, match="which is not in its /etc/passwd"):
        _user_in("web", layers, "app:1")
    write(place / "top", "web:x:5:6::/:/bin/sh\n")
    assert _user_in("web", [*layers, str(place / "top")], "app:1").pw_uid == 5


def test_accounts_are_those_below_layers_without_the_file(open_directory: Path) -> None:
    place = open_directory / "accounts-merged"
    write(place / "low")
    (place / "middle/etc").mkdir(parents=True)
    (place / "high").mkdir()
    layers = [str(place / name) for name in ("low", "middle", "high")]
    assert _user_in("web", layers, "app:1").pw_uid == 4321


def test_accounts_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    """Errors other than a missing name are of the host."""
    write(tmp_path / "low")
    with pytest.raises(OSError, match="name too long"):
        _accounts("etc/" + "x" * 300, [str(tmp_path / "low")], 4)
