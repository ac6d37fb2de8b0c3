"""Words of a program that cannot be executed: which file is missing, closed or private, and what to do."""

import errno
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from isolator.host.programs_of_tasks import Start, words_of, words_of_exit

OTHER = (64999, 64999, ())  # no owner of the files of these tests
MINE = (os.geteuid(), os.getegid(), ())


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
    assert words == f" in PATH (/nowhere:{tmp_path}/bin); there is python3"
    assert words_of(errno.ENOENT, start("ruby", tmp_path)) == " in PATH (/nowhere)"


def test_program_below_a_private_directory_of_the_host_is_said_to_be_out_of_sight(
    open_place: Path,
) -> None:
    private = open_place / "private"
    program = made(private / "me/tool")
    for asked, path in ((str(program), "/nowhere"), ("tool", f"/nowhere:{private}/me")):
        tried = replace(start(asked, open_place / "sandbox", path), private=(str(private),))
        words = words_of(errno.ENOENT, tried)
        assert words.startswith(
            f": {program} of the host is not visible to the task, which has a private {private}"
        )
        assert "--upload" in words
    sandbox = private / "sandbox"
    made(sandbox / "data")
    inside = replace(start("./train.sh", sandbox), private=(str(private),))
    assert "searched in the sandbox" in words_of(errno.ENOENT, inside)


def test_command_line_in_one_argument_is_explained(tmp_path: Path) -> None:
    words = words_of(errno.ENOENT, start("python train.py; cat log", tmp_path))
    assert words == "; it is one argument with spaces: for a line of a shell, run -- sh -c 'LINE'"


def test_interpreter_that_is_absent_is_named(tmp_path: Path) -> None:
    made(tmp_path / "train.sh", "#!/no/such/python -u\n")
    assert words_of(errno.ENOENT, start("./train.sh", tmp_path)) == (
        ": its first line names /no/such/python, which does not exist"
    )


def test_interpreter_of_a_program_in_path_that_is_absent_is_named(tmp_path: Path) -> None:
    made(tmp_path / "bin/torchrun", "#!/no/such/python\n")
    words = ": its first line names /no/such/python, which does not exist"
    begun = start("torchrun", tmp_path, f"/nowhere:{tmp_path}/bin", user=MINE)
    assert words_of(errno.ENOENT, begun) == words
    assert words_of_exit(127, "torchrun x", begun).endswith(f"No such file or directory{words}")


def test_files_below_a_closed_directory_are_as_those_that_are_not_there(open_place: Path) -> None:
    made(open_place / "home/there", "#!/no/such/python\n")
    (open_place / "home").chmod(0o700)
    for status in (126, 127):
        words = [
            words_of_exit(status, f"{open_place}/home/{name}", start("/bin/sh", open_place))
            for name in ("there", "away")
        ]
        assert words[0].replace("there", "away") == words[1]
    words = [
        words_of(errno.EACCES, start(f"{open_place}/home/{name}", open_place)) for name in ("there", "away")
    ]
    assert words[0] == words[1] != ""


def test_first_line_of_a_device_or_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o777)
    assert words_of_exit(127, "./pipe", start("/bin/sh", tmp_path, user=MINE)) == ""


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
    assert words == f": its first line names {python}, but {closed}"
    (open_place / "link").symlink_to(python)
    assert words_of(errno.EACCES, start(str(open_place / "link"), open_place)) == f": {closed}"
    assert words_of(errno.EACCES, start(str(home.parent / "bin"), open_place)).endswith("bin is a directory")
    assert words_of(errno.EACCES, start(str(script), open_place, user=MINE)) == "", (
        "nothing keeps the owner from it"
    )


def test_start_that_failed_for_another_reason_has_no_more_words(tmp_path: Path) -> None:
    assert words_of(errno.ENOEXEC, start("/etc/passwd", tmp_path)) == ""


@pytest.mark.parametrize(
    "command",
    [
        "python train.py",
        "set -e; A=1 B=2 exec python train.py --out 'a b' > log 2>&1",
        "if true; then python x; fi",
        "echo hello | python -",
        "true &&\n python x # comment",
    ],
)
def test_program_that_a_shell_does_not_find_is_named(tmp_path: Path, command: str) -> None:
    made(tmp_path / "bin/python3")
    words = words_of_exit(127, command, start("/bin/sh", tmp_path, f"{tmp_path}/bin"))
    assert words == (
        f"'python' cannot be executed: No such file or directory in PATH ({tmp_path}/bin); there is python3"
    )


@pytest.mark.parametrize(
    "command",
    [
        "python3 train.py",  # its own exit status
        "cd code && ./train.sh",
        ". env/bin/activate; python x",
        "export PATH=/opt/bin; python x",
        "python() { exit 127; }; python",
        "$(which python) x",
        "$PYTHON x",
        "echo 'python x",
        "for python in a b; do exit 127; done",
        "x" * 100_000,
    ],
)
def test_command_of_which_no_program_is_known_to_be_absent_has_no_more_words(
    tmp_path: Path, command: str
) -> None:
    made(tmp_path / "bin/python3")
    assert words_of_exit(127, command, start("/bin/sh", tmp_path, f"{tmp_path}/bin")) == ""


def test_script_of_env_is_said_with_the_program_that_env_looks_for(tmp_path: Path) -> None:
    made(tmp_path / "bin/python3")
    made(tmp_path / "train.py", "#!/usr/bin/env -S python -u\n")
    begun = start("./train.py", tmp_path, f"{tmp_path}/bin")
    words = words_of_exit(127, None, begun)
    assert words.startswith(
        "the first line of ./train.py names env, but 'python' cannot be executed: No such file"
    )
    assert words.endswith("; there is python3")
    assert words_of_exit(127, "./train.py --epochs 3", begun) == words


def test_directory_that_keeps_a_shell_from_a_program_is_named(open_place: Path) -> None:
    uid = os.geteuid()
    python = made(open_place / "home/env/bin/python3")
    (open_place / "home").chmod(0o700)
    script = made(open_place / "torchrun", f"#!{python}\n")
    closed = f"uid 64999 may not pass {open_place}/home (mode 0700, owner uid {uid})"
    for command, words in (
        (f"{python} train.py", f"{str(python)!r} cannot be executed: Permission denied: {closed}"),
        (
            f"{script} train.py",
            f"{str(script)!r} cannot be executed: Permission denied: its first line names {python}, but {closed}",
        ),
    ):
        assert words_of_exit(126, command, start("/bin/sh", open_place)) == words


def test_program_and_interpreter_of_the_hosts_tmp_are_said_to_be_out_of_sight(open_place: Path) -> None:
    private = open_place / "private"
    python = made(private / "env/bin/python")
    script = made(open_place / "torchrun", f"#!{python}\n")
    begun = replace(start("/bin/sh", open_place / "sandbox"), private=(str(private),))
    assert f"has a private {private}; send files along" in words_of_exit(127, f"{python} x", begun)
    words = words_of_exit(127, f"{script} x", begun)
    assert words.endswith(f"its first line names {python} of the host, but a task has a private {private}")
    assert words_of(errno.ENOENT, replace(begun, program=str(script))).endswith(
        f"a task has a private {private}"
    )


@pytest.mark.parametrize(
    "command",
    [
        "; ".join(f"{'./' * 20}../{'x/../' * 60}no-{n}" for n in range(30)),
        "; ".join(f"no-{n}" for n in range(1000)),
        f"{'a' * 16000}!",
        f"/{'tmp/../' * 2000}no",
    ],
    ids=["components", "programs", "letters", "one-path"],
)
def test_search_of_programs_is_bounded_in_time(tmp_path: Path, command: str) -> None:
    """The time is that of this thread, so that other programs do not count."""
    path = ":".join(f"{tmp_path}/{'../' * 9}{tmp_path}" for _ in range(1000))
    before = time.thread_time()
    words_of_exit(126, command, start("/bin/sh", tmp_path, path))
    assert time.thread_time() - before < 0.5


def test_program_beyond_the_bounds_is_not_looked_for(tmp_path: Path) -> None:
    known = "; ".join(f"{made(tmp_path / f'tool-{n}')}" for n in range(16))
    assert words_of_exit(127, f"{known}; absent", start("/bin/sh", tmp_path)) == ""
    repeated = "; ".join([str(tmp_path / "tool-0")] * 16)
    assert "'absent' cannot be" in words_of_exit(127, f"{repeated}; absent", start("/bin/sh", tmp_path))
