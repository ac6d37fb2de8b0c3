"""Findings on modes of files, and on those of their directories."""

from pathlib import Path

import pytest

from isolator.node import private_files
from isolator.node.findings import Finding, Host, Level
from isolator.node.private_files import (
    CHECK,
    look_at_work_dir,
    open_to_others,
    seen_by_others,
)
from isolator.node.private_files import (
    private_files as look_at_files,
)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700, 0o1700, 0o4700])
def test_a_mode_without_rights_of_others_is_right(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    assert list(open_to_others(path)) == []


@pytest.mark.parametrize("bit", [0o040, 0o020, 0o010, 0o004, 0o002, 0o001])
def test_each_right_of_others_is_named_with_the_mode(tmp_path: Path, bit: int) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o600 | bit)
    assert list(open_to_others(path)) == [(path, 0o600 | bit)]
    (tmp_path / "link").symlink_to(path)
    assert list(open_to_others(tmp_path / "link")) == []


@pytest.mark.parametrize(("count", "more"), [(2, ""), (3, ""), (4, " and 1 more"), (5, " and 2 more")])
def test_as_many_files_are_shown_as_a_person_reads(tmp_path: Path, count: int, more: str) -> None:
    top = tmp_path / "kept"
    (top / "below").mkdir(parents=True)
    for path in top, top / "below":
        path.chmod(0o700)
    for number in range(count):
        (top / "below" / str(number)).touch()
        (top / "below" / str(number)).chmod(0o604)
    (finding,) = seen_by_others(top, "it", alone=True)
    assert (finding.check, finding.level, finding.remedy) == (CHECK, Level.FAIL, f"chmod -R go= {top}")
    assert finding.text.startswith(f"it: others can read or change {top}/below/")
    assert finding.text.count(" (0604)") == min(count, 3)
    assert finding.text.endswith(f" (0604){more}")


def test_a_directory_is_looked_at_no_further_than_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_files, "MAX_FILES", 4)
    for number in range(9):
        (tmp_path / str(number)).touch()
        (tmp_path / str(number)).chmod(0o644)
    tmp_path.chmod(0o700)
    assert len(list(open_to_others(tmp_path))) == 4


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("mode", [0o700, 0o701, 0o710])
def test_a_file_whose_directory_is_not_its_owners_alone_is_a_warning(
    tmp_path: Path, alone: bool, mode: int
) -> None:
    path = tmp_path / "kept" / "file"
    path.parent.mkdir()
    path.touch(mode=0o600)
    path.parent.chmod(mode)
    text = f"it: its directory {path.parent} is open to others"
    remedy = f"keep it in a directory of mode 0700: chmod 700 {path.parent}"
    wanted = [Finding(CHECK, Level.WARN, text, remedy)] if alone and mode != 0o700 else []
    assert list(seen_by_others(path, "it", alone=alone)) == wanted
    (tmp_path / "kept" / "below").mkdir(mode=0o700)
    assert list(seen_by_others(tmp_path / "kept" / "below", "it", alone=alone)) == []


def test_files_of_a_node_are_looked_at_with_what_is_named(tmp_path: Path) -> None:
    node = tmp_path / "var/node"
    node.mkdir(parents=True, mode=0o700)
    env = {
        "MESOS_GPU_STATE": "/var/node/state",
        "MESOS_GPU_VAULT_TOKEN_FILE": "/token",
        "MESOS_GPU_AUDIT": "",
    }
    host = Host(node, None, env, tmp_path)

    def findings() -> list[tuple[Level, str]]:
        return [(each.level, each.text) for each in private_files.private_files(host)]

    def ok(count: int) -> tuple[Level, str]:
        return Level.OK, f"{count} private files and directories were checked"

    state, token = (
        (Level.WARN, f"the scheduler's state: {node}/state does not exist"),
        (Level.WARN, f"Vault's token: {tmp_path}/token does not exist"),
    )
    assert findings() == [state, token, ok(0)]
    for path in node / "state", node / "ledger.sqlite", tmp_path / "token":
        path.touch(mode=0o600)
    tmp_path.chmod(0o755)
    assert findings() == [ok(3)]
    node.chmod(0o750)
    above = f"its directory {node} is open to others"
    assert findings() == [
        (Level.WARN, f"the scheduler's state: {above}"),
        (Level.WARN, f"the ledger: {above}"),
        ok(3),
    ]
    (tmp_path / "token").chmod(0o640)
    assert (Level.FAIL, f"Vault's token: others can read or change {tmp_path}/token (0640)") in findings()


@pytest.mark.parametrize("flags", [{}, {"work_dir": ""}, {"work_dir": "relative"}, {"work_dir": "/missing"}])
def test_a_work_dir_that_is_not_known_is_not_looked_at(tmp_path: Path, flags: dict[str, str]) -> None:
    assert list(look_at_work_dir(Host(tmp_path, None, {}, tmp_path), flags, "agent")) == []


def test_a_work_dir_that_others_may_enter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meta = tmp_path / "srv/mesos/meta"
    meta.mkdir(parents=True)
    host = Host(tmp_path, None, {}, tmp_path)

    def findings() -> list[str]:
        seen = look_at_work_dir(host, {"work_dir": "/srv/mesos"}, "agent")
        return [f"{each.check} {each.level.value} {each.remedy}" for each in seen]

    for path in tmp_path, tmp_path / "srv", meta.parent, meta:
        path.chmod(0o711)
    assert findings() == ["agent WARN chmod 700 /srv/mesos/meta"]
    monkeypatch.setattr(private_files, "has_acls", lambda _path: False)
    no_acls = "agent FAIL put the agent's work_dir on ext4, xfs or btrfs"
    assert findings() == [no_acls, "agent WARN chmod 700 /srv/mesos/meta"]
    (tmp_path / "srv").chmod(0o770)
    assert findings() == [no_acls]


def test_root_of_persistent_volumes_that_others_may_enter_is_named(tmp_path: Path) -> None:
    root = tmp_path / "persistent"
    root.mkdir(mode=0o700)
    host = Host(tmp_path / "node", None, {"MESOS_GPU_PERSISTENT_ROOT": str(root)})
    (volume := root / "volume").mkdir()
    volume.chmod(0o755)
    assert [each.level for each in look_at_files(host)] == [Level.OK], "what tasks have in it is theirs"
    root.chmod(0o755)
    finding, _ = look_at_files(host)
    assert (finding.check, finding.level) == (CHECK, Level.FAIL)
    assert f"MESOS_GPU_PERSISTENT_ROOT is '{root}'" in finding.text
    assert finding.remedy.endswith(f"install -d -m 700 {root}")
