"""Words of a program that cannot be executed: which file is missing, closed or private, and what to do."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.host.programs_of_tasks import Start, words_of

OTHER = (64999, 64999, ())  # no owner of the files of these tests


def start(
    program: str, sandbox: Path, path: str = "/nowhere", user: tuple[int, int, tuple[int, ...]] = OTHER
) -> Start:
    return Start(program, str(sandbox), {"PATH": path}, user)


def made(path: Path, text: str = "", mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture
def open_place(open_directory: Path) -> Path:
    """A directory that all users may pass, outside of those that tasks have for themselves."""
    return Path(os.path.realpath(open_directory))


def test_program_absent_from_path_is_said_with_its_third_version(tmp_path: Path) -> None:
    made(tmp_path / "bin/python3")
    words = words_of(errno.ENOENT, start("python", tmp_path, f"/nowhere:{tmp_path}/bin"))
    assert words == f" in PATH, which is /nowhere:{tmp_path}/bin; there is python3"
    assert words_of(errno.ENOENT, start("ruby", tmp_path)) == " in PATH, which is /nowhere"


def test_program_below_a_private_directory_of_the_host_is_said_to_be_out_of_sight(
    open_place: Path,
) -> None:
    private = open_place / "private"
    program = made(private / "me/tool")
    for asked, path in ((str(program), "/nowhere"), ("tool", f"/nowhere:{private}/me")):
        tried = replace(start(asked, open_place / "sandbox", path), private=(str(private),))
        words = words_of(errno.ENOENT, tried)
        assert words.startswith(
            f": {program} of the host is not the task's, which has a {private} of its own"
        )
        assert "--upload" in words
    sandbox = private / "sandbox"
    made(sandbox / "data")
    inside = replace(start("./train.sh", sandbox), private=(str(private),))
    assert "looked in the sandbox" in words_of(errno.ENOENT, inside)


def test_interpreter_that_is_absent_is_named(tmp_path: Path) -> None:
    made(tmp_path / "train.sh", "#!/no/such/python -u\n")
    assert words_of(errno.ENOENT, start("./train.sh", tmp_path)) == (
        ": its first line names /no/such/python, which is not there"
    )


def test_file_or_directory_that_is_closed_to_the_user_is_named_with_its_mode(open_place: Path) -> None:
    uid = os.geteuid()
    plain = made(open_place / "plain", mode=0o644)
    words = words_of(errno.EACCES, start(str(plain), open_place))
    assert words == f": uid 64999 may not execute {plain} (mode 0644, owner uid {uid})"
    home = open_place / "home"
    python = made(home / "env/bin/python3")
    home.chmod(0o700)
    script = made(open_place / "bin/torchrun", f"#!{python}\n")
    closed = f"uid 64999 may not pass {home} (mode 0700, owner uid {uid})"
    words = words_of(errno.EACCES, start("torchrun", open_place, f"{open_place}/bin"))
    assert words == f": its first line names {python}, and {closed}"
    (open_place / "link").symlink_to(python)
    assert words_of(errno.EACCES, start(str(open_place / "link"), open_place)) == f": {closed}"
    assert words_of(errno.EACCES, start(str(home.parent / "bin"), open_place)).endswith("bin is a directory")
    mine = (uid, os.getegid(), ())
    assert words_of(errno.EACCES, start(str(script), open_place, user=mine)) == "", (
        "nothing keeps the owner from it"
    )


def test_start_that_failed_for_another_reason_has_no_more_words(tmp_path: Path) -> None:
    assert words_of(errno.ENOEXEC, start("/etc/passwd", tmp_path)) == ""
