"""The record of images that registries showed to a host without a login."""

from pathlib import Path

import pytest

from isolator.images import public as records
from isolator.images.public import FRESH_S, KEPT_S, NAME, PublicImages


def test_public_image_is_known_for_a_day(tmp_path: Path) -> None:
    public = PublicImages(tmp_path)
    assert not public.is_public("a", 1.0)
    public.add("a", 1.0)
    assert PublicImages(tmp_path).is_public("a", 1.0 + KEPT_S - 1)
    assert not public.is_public("a", 1.0 + KEPT_S)
    assert not public.is_public("a", 0.0), "the clock was set back"
    assert not public.is_public("ab", 1.0)


def test_public_image_that_is_refused_is_forgotten(tmp_path: Path) -> None:
    public = PublicImages(tmp_path)
    public.remove("a")
    assert not list(tmp_path.iterdir())
    public.add("a", 1.0)
    public.add("b", 1.0)
    public.remove("a")
    assert not public.is_public("a", 2.0)
    assert public.is_public("b", 2.0)
    assert [each.name for each in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600


def test_record_of_public_images_is_bounded_and_seldom_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_RECORDS", 20)
    public = PublicImages(tmp_path)
    public.add("a", 1.0)
    before = (tmp_path / NAME).stat().st_ino
    public.add("a", FRESH_S)
    assert (tmp_path / NAME).stat().st_ino == before
    for number in range(25):
        public.add(str(number), 10.0 + number)
    assert not public.is_public("a", 20.0)
    assert not public.is_public("3", 2000.0)
    assert public.is_public("24", 2000.0)


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"a": "x"}', b'{"a": null}', b"\xff"])
def test_damaged_record_makes_no_image_public(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)
    assert not PublicImages(tmp_path).is_public("a", 1.0)
    PublicImages(tmp_path).add("a", 1.0)
    assert PublicImages(tmp_path).is_public("a", 2.0)
