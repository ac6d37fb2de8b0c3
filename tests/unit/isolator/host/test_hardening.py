"""What the doctor says of a kernel's settings."""

from collections.abc import Mapping

import pytest

from isolator.host import hardening

SYS = "proc/sys/"
GOOD: Mapping[str, str] = {
    "kernel/yama/ptrace_scope": "1\n", "fs/protected_symlinks": "1\n", "fs/protected_hardlinks": "1\n",
    "fs/protected_fifos": "1\n", "fs/protected_regular": "2\n", "user/max_user_namespaces": "0\n",
}  # fmt: skip


def remedies(**changed: str | None) -> list[str]:
    """The remedies for a host with these settings."""
    given = {**GOOD, **{name.replace("__", "/"): value for name, value in changed.items()}}

    def read(path: str) -> str:
        return given.get(path.removeprefix(SYS)) or ""

    answers = [
        *hardening.tracing(read, landlock=True), *hardening.links(read), *hardening.user_namespaces(read)
    ]  # fmt: skip
    assert len(answers) == 3
    return [answer.remedy for answer in answers if answer.remedy]


def test_signals_between_tasks_have_a_remedy_without_scopes() -> None:
    (kept,), (open_,) = hardening.signals(scoped=True), hardening.signals(scoped=False)
    assert kept.remedy == ""
    assert "Linux 6.12" in open_.remedy


@pytest.mark.parametrize(("text", "refused"), [("", False), ("0\n", False), ("1\n", False), ("2\n", True)])
def test_commands_have_a_remedy_where_no_file_in_memory_is_executed(text: str, refused: bool) -> None:
    (answer,) = hardening.commands({"proc/sys/vm/memfd_noexec": text}.__getitem__)
    assert bool(answer.remedy) == refused
    if refused:
        assert "`mesos-gpu exec`, COMMAND checks" in answer.text
        assert answer.remedy.startswith("sysctl vm.memfd_noexec=1,")


def test_hardened_host_has_no_remedies() -> None:
    assert remedies() == []


@pytest.mark.parametrize(
    ("changed", "remedy"),
    [
        ({"kernel__yama__ptrace_scope": "0"}, "sysctl kernel.yama.ptrace_scope=1;"),
        ({"kernel__yama__ptrace_scope": None}, "CONFIG_SECURITY_YAMA"),
        ({"fs__protected_symlinks": "0"}, "sysctl fs.protected_symlinks=1,"),
        (
            {"fs__protected_fifos": "0", "fs__protected_regular": "0"},
            "fs.protected_fifos=2 fs.protected_regular=2",
        ),
        ({"user__max_user_namespaces": "1000"}, "sysctl user.max_user_namespaces=0"),
    ],
)
def test_missing_hardening_has_a_remedy(changed: Mapping[str, str | None], remedy: str) -> None:
    (said,) = remedies(**changed)
    assert remedy in said


@pytest.mark.parametrize(
    "off", ["kernel__unprivileged_userns_clone", "kernel__apparmor_restrict_unprivileged_userns"]
)
def test_debians_and_ubuntus_switches_count(off: str) -> None:
    value = "0" if off.endswith("clone") else "1"
    assert remedies(user__max_user_namespaces="1000", **{off: value}) == []
