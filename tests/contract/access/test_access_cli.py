"""`mesos-gpu access` and `mesos-gpu token` against a real scheduler: YAML out and in, what is asked, exit codes."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from rich.cells import cell_len
from starlette.types import Scope

from mesos_gpu.access.tokens import parts_of
from mesos_gpu.cli import output
from mesos_gpu.model.access.caller import ANYBODY, Caller, Proof
from tests.contract.access.rig import AccessRig
from tests.contract.cli.cli_rig import call

FILE = """\
roles:
  - name: shop
    rights: [job:run, 'app:write:/shop/*']
    limits: {images: ['registry.corp/*'], highest_priority: 5}
bindings:
  - {names: [ann], roles: [admin]}
  - {groups: [ml], roles: [user, shop], queues: [research], apps: [/research/*]}
unix_users: {ann@corp: ann}
shares: {research: [jobs]}
"""


class CliRig(AccessRig):
    """The one who calls is who a test says: the command line sends no header."""

    def __init__(self) -> None:
        self.caller = ANYBODY
        super().__init__()

    async def identify(self, scope: Scope) -> Caller:
        return self.caller


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CliRig]:
    rig = CliRig()
    monkeypatch.setenv("MESOS_GPU_URL", rig.server.url)
    monkeypatch.setenv("MESOS_GPU_HOME", str(tmp_path))
    yield rig
    rig.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.yaml"
    path.write_text(FILE)
    return path


def done(*words: str | Path) -> str:
    result = call(*map(str, words))
    assert result.exit_code == 0, result.output
    return result.stdout


def failed(result: Result, code: int) -> str:
    assert result.exit_code == code, (result.exit_code, result.output)
    return result.output


def test_access_document_applied_as_shown_is_no_change(rig: CliRig, file: Path, tmp_path: Path) -> None:
    assert done("access", "apply", file, "--yes", "--comment", "the first").endswith(
        "Version 1: 1 role and 2 bindings.\n"
    )
    shown = done("access", "show")
    first, _, rest = shown.partition("\n")
    assert first.startswith("# Version 1, ")
    assert first.endswith(", by an unknown user: the first")
    assert yaml.safe_load(rest) == {"version": 1, **yaml.safe_load(FILE)}
    again = tmp_path / "again.yaml"
    again.write_text(shown)
    assert done("access", "apply", again) == "Version 1 is equal to the file; nothing was changed.\n"
    assert done("access", "diff", again) == ""
    as_json = tmp_path / "access.json"
    as_json.write_text(done("access", "show", "--json"))
    assert done("access", "diff", as_json) == ""


def test_a_change_is_shown_before_it_is_asked_for(rig: CliRig, file: Path) -> None:
    done("access", "apply", file, "--yes")
    file.write_text(FILE.replace("names: [ann]", "names: [ann, bob]"))
    words = failed(call("access", "diff", str(file)), 1)
    assert "-  - names: [ann]\n+  - names: [ann, bob]\n" in words
    assert "add --yes" in failed(call("access", "apply", str(file)), 2)
    assert rig.daemon.access.version == 1
    assert "+  - names: [ann, bob]" in done("access", "apply", file, "--yes")
    assert rig.daemon.access.bindings[0].names == ("ann", "bob")


def test_access_apply_asks_and_takes_no_for_an_answer(
    rig: CliRig, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    assert "Apply these changes?" in failed(call("access", "apply", str(file), stdin="n\n"), 1)
    assert rig.daemon.access.version == 0
    assert call("access", "apply", str(file), stdin="y\n").exit_code == 0
    assert rig.daemon.access.version == 1


def test_a_file_of_another_version_is_refused_and_one_without_is_not(rig: CliRig, file: Path) -> None:
    done("access", "apply", file, "--yes")
    for stale in ("version: 0\n", "version: 2\n"):
        file.write_text(stale + FILE + "# x")
        words = failed(call("access", "apply", str(file), "--yes"), 73)
        assert "the document is at version 1" in words
    file.write_text(FILE.replace("[jobs]", "[jobs, output]"))
    done("access", "apply", file, "--yes")
    assert rig.daemon.access.version == 2


def test_a_wrong_file_is_told_with_each_place_before_anything_is_sent(rig: CliRig, file: Path) -> None:
    file.write_text(
        "roles: [{name: admin, rights: [job:fly]}]\nbindings: [{roles: [x]}]\nunix_users: {a: root}\n"
    )
    words = failed(call("access", "apply", str(file), "--yes"), 65)
    for place in ("/roles/0/name: ", "/roles/0/rights/0: ", "/bindings/0/roles/0: ", "/unix_users/a: "):
        assert place in words
    assert failed(call("access", "diff", str(file)), 2)
    for text in ("- a\n", "a: [*x]\n", "a: 1\na: 2\n"):
        file.write_text(text)
        failed(call("access", "apply", str(file), "--yes"), 65)
    assert rig.daemon.access.version == 0


def test_versions_and_the_way_back(rig: CliRig, file: Path) -> None:
    done("access", "apply", file, "--yes", "--comment", "the first")
    file.write_text(FILE.replace("[jobs]", "[]"))
    done("access", "apply", file, "--yes", "--comment", "nothing is shared")
    rows = [line.split() for line in done("access", "versions").splitlines()]
    assert rows[0] == ["VERSION", "AT", "BY", "ROLES", "BINDINGS", "COMMENT"]
    assert [row[0] for row in rows[1:]] == ["2", "1"]
    assert "+  research: [jobs]" in done("access", "rollback", "1", "--yes")
    assert rig.daemon.access.comment == "as version 1"
    assert rig.daemon.access.shares == rig.daemon.read(lambda view: view.access_versions[1]).result(60).shares
    assert "version: 1\n" in done("access", "show", "--version", "1")
    assert "there is no version 9" in failed(call("access", "rollback", "9", "--yes"), 66)


def test_a_document_that_nobody_could_change_again_needs_force(rig: CliRig, file: Path) -> None:
    file.write_text("bindings: [{names: [ann], roles: [user]}]\n")
    assert "access:write" in failed(call("access", "apply", str(file), "--yes"), 73)
    done("access", "apply", file, "--yes", "--force")


def test_access_diff_is_a_document_for_programs(rig: CliRig, file: Path) -> None:
    seen = json.loads(failed(call("access", "diff", "--json", str(file)), 1))
    assert (seen["version"], seen["diff"][0]) == (0, "--- version 0")
    assert json.loads(done("access", "apply", file, "--yes", "--json"))["version"] == 1
    file.write_text(FILE.replace("[jobs]", "[]"))
    done("access", "apply", file, "--yes")
    assert json.loads(done("access", "rollback", "1", "--yes", "--json"))["version"] == 3
    token_id = json.loads(done("token", "create", "--name", "ann", "--json"))["token"]["id"]
    assert json.loads(done("token", "revoke", token_id, "--json"))["tokens"][0]["id"] == token_id


def test_whether_a_name_may(rig: CliRig, file: Path) -> None:
    done("access", "apply", file, "--yes")
    rig.caller = Caller("ann", proof=Proof.PASSWORD)
    assert done("access", "can", "ann", "gpu:drain") == (
        "yes: ann has gpu:drain\n  binding 0 has the role admin\n"
    )
    words = failed(call("access", "can", "bob", "job:run", "--queue", "research", "--owner", "bob"), 1)
    assert words == (
        "no: bob lacks the right job:run in queue research\n"
        "  to grant it: ask ann to bind a role that gives it (mesos-gpu access apply)\n"
    )
    done("access", "can", "bob", "job:run", "--group", "ml", "--queue", "research", "--owner", "bob")
    assert "leave the field out to check your own rights" in call("access", "can", "", "job:run").output
    typed = failed(call("access", "can", "bob", "job:kil"), 2)
    assert "no right is called 'job:kil'; did you mean job:kill" in typed
    rig.caller = Caller("bob", proof=Proof.PASSWORD)
    assert "bob lacks the right access:see" in call("access", "can", "ann", "job:run").output


def test_rights_and_roles_are_listed(rig: CliRig) -> None:
    words = done("access", "rights")
    assert re.search(r"^job:kill +own, pattern +end jobs$", words, re.MULTILINE)
    assert words.splitlines()[-1].startswith("admin     *")


def test_a_token_alone_is_printed_to_stdout(rig: CliRig) -> None:
    made = call(
        "token",
        "create",
        "--name",
        "ann",
        "--right",
        "job:*",
        "--queue",
        "research",
        "--expires",
        "2h",
        "--comment",
        "CI",
    )
    assert made.exit_code == 0, made.output
    id, _ = parts_of(made.stdout.rstrip("\n")) or ("", "")
    assert made.stderr.startswith(f"mesos-gpu: token {id} for ann is valid until ")
    rig.caller = Caller("root", proof=Proof.SOCKET, local_admin=True)
    idle = call("token", "create", "--name", "nell")
    assert "nell can do nothing with this token: no binding names nell or its groups" in idle.stderr
    kept = rig.daemon.tokens[id]
    assert (kept.narrowing.rights, kept.narrowing.queues, kept.comment) == (("job:*",), ("research",), "CI")
    assert kept.expires_at - kept.created_at == 7200
    listed = done("token", "list")
    assert id in listed
    assert made.stdout.strip() not in listed
    assert done("token", "revoke", id) == f"{id} of ann was revoked\n"
    assert "there is no token" in failed(call("token", "revoke", id), 66)
    assert "is not the id of a token" in failed(call("token", "revoke", "../x"), 2)
    assert "there is no such right" in failed(
        call("token", "create", "--name", "ann", "--right", "job:fly"), 65
    )


def test_access_can_fits_80_columns(rig: CliRig, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done("access", "apply", file, "--yes")
    rig.caller = Caller("bob", frozenset({"ml"}), Proof.PASSWORD)
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    monkeypatch.setenv("COLUMNS", "80")
    said = done("whoami")
    assert max(map(cell_len, said.splitlines())) <= 80
    assert "see what jobs run: commands, images, volumes, labels, messages" in " ".join(said.split())


@pytest.mark.parametrize("words", ["access versions", "access rights", "token list"])
def test_tables_fit_80_columns(rig: CliRig, file: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    done("access", "apply", file, "--yes", "--comment", 20 * "a long comment ")
    long = ["--name", "CN=somebody.with.a.long.name,OU=research,O=corp", "--comment", 20 * "for CI "]
    done("token", "create", "--right", "app:write:/a/long/path/of/an/app/*", "--queue", "research-*", *long)
    monkeypatch.setattr(output, "is_terminal", lambda _stream: True)
    monkeypatch.setenv("COLUMNS", "80")
    lines = done(*words.split()).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert lines[0].split()[0] in ("VERSION", "RIGHT", "ID")
