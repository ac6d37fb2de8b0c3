"""Plans: what they say of each host, that secrets stay secret and are chosen once, and the rules of firewalls."""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from mesos_gpu.adapters.replicated.place import parsed as place_of
from mesos_gpu.cli import main
from mesos_gpu.errors import BadConfiguration, Conflict
from mesos_gpu.install import archive
from mesos_gpu.install.cluster.description import Cluster
from mesos_gpu.install.cluster.document import decode
from mesos_gpu.install.cluster.kept import Kept
from mesos_gpu.install.cluster.plan import HostPlan, planned
from mesos_gpu.install.cluster.reading import read
from mesos_gpu.install.cluster.record import Record
from tests.unit.install.cluster.test_file import FILE

NOTHING = Record(Path("/nowhere"), {})
GOLDEN = FILE.with_name("plan.txt")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    made = Kept(tmp_path_factory.mktemp("cluster") / "secrets", ("*",))
    made.create()
    return made


def call(*words: str) -> Result:
    return CliRunner().invoke(main, ["cluster", *words])


@pytest.fixture(autouse=True)
def small_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have executors' archives contain little: plans name them by their digests."""
    monkeypatch.setattr(archive, "contents", lambda: {"isolator/__init__.py": b""})


def plans(kept: Kept) -> dict[str, HostPlan]:
    return {each.host.name: each for each in planned(read(FILE, NOTHING), kept, NOTHING, executor=b"pyz")}


def text(plan: HostPlan, path: str) -> str:
    (file,) = [each for each in plan.files if each.path == path]
    assert file.data is not None
    return file.data.decode()


def variables(plan: HostPlan, path: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(text(plan, path)))


def test_the_plan_is_printed_as_it_was_agreed(tmp_path: Path) -> None:
    """After an intended change: mesos-gpu cluster plan tests/data/cluster/cluster.yaml > tests/data/cluster/plan.txt"""
    done = call("plan", str(FILE), "--secrets", str(tmp_path / "none"))
    assert done.output == GOLDEN.read_text()
    assert not (tmp_path / "none").exists(), "a plan chooses no secrets"


def test_a_plan_as_json_has_what_is_printed_and_no_secret(kept: Kept) -> None:
    done = call("plan", str(FILE), "--secrets", str(kept.directory), "--json", "--host", "m3")
    (host,) = json.loads(done.output)["hosts"]
    assert host["roles"] == ["zookeeper", "master", "scheduler"]
    secret = [each for each in host["files"] if each["secret"]]
    assert len(secret) == 4
    assert {(each["mode"], each["text"]) for each in secret} == {("0600", None)}
    printed = call("plan", str(FILE), "--secrets", str(kept.directory), "--texts").output
    words = re.findall(r'"secret": "([^"]+)"', "".join(p.read_text() for p in kept.directory.rglob("*.json")))
    words += [p.read_text().strip().partition(":")[2] for p in (kept.directory / "zookeeper").iterdir()]
    assert len(set(words)) == 6
    assert not [word for word in words if word in printed + done.output]
    assert "zk://10.0.0.3:2181" in printed


def test_masters_meet_where_only_they_may_write_and_agents_need_no_password(kept: Kept) -> None:
    made = plans(kept)
    of_master = variables(made["m1"], "/etc/mesos-gpu/master.env")
    assert (of_master["MESOS_ZK"], of_master["MESOS_QUORUM"]) == ("file:///etc/mesos-gpu/secrets/zk", "2")
    place = text(made["m1"], "/etc/mesos-gpu/secrets/zk")
    assert re.fullmatch(
        r"zk://mesos-gpu-masters:[\w-]{43}@10.0.0.3:2181,10.0.0.1:2181,10.0.0.2:2181/mesos\n", place
    )
    of_agent = variables(made["g1"], "/etc/mesos-gpu/agent.env")
    assert of_agent["MESOS_MASTER"] == "zk://10.0.0.3:2181,10.0.0.1:2181,10.0.0.2:2181/mesos"
    assert (of_agent["MESOS_IP"], of_agent["MESOS_ATTRIBUTES"]) == ("10.0.1.4", "rack:a")
    assert "zookeeper/masters" not in [file.secret for file in made["g1"].files]
    assert not {"zk", "http-credentials.json"} & {Path(file.path).name for file in made["m1"].files} - {"zk"}


def test_each_server_of_zookeeper_has_a_number_of_its_own(kept: Kept) -> None:
    made = [each for name, each in plans(kept).items() if name != "g1"]
    assert sorted(text(each, "/var/lib/mesos-gpu-zookeeper/myid") for each in made) == ["1\n", "2\n", "3\n"]
    (configuration,) = {text(each, "/etc/mesos-gpu/zookeeper/zoo.cfg") for each in made}
    for each in made:
        number = text(each, "/var/lib/mesos-gpu-zookeeper/myid").strip()
        assert f"server.{number}={each.host.address}:2182:2183;{each.host.address}:2181\n" in configuration


def test_every_file_that_a_flag_names_is_in_the_plan(kept: Kept) -> None:
    for plan in plans(kept).values():
        paths = {file.path for file in plan.files}
        whole = "".join(
            file.data.decode(errors="replace") for file in plan.files if file.data and not file.secret
        )
        assert set(re.findall(r"/etc/mesos-gpu/[\w./-]+\.json", whole)) <= paths
        assert set(re.findall(r"/etc/mesos-gpu/[\w-]+\.env", whole)) <= paths
        for service in plan.services:
            assert f"/usr/lib/systemd/system/{service.name}" in service.reads
            assert {*service.reads} <= paths


def test_secrets_are_chosen_once_for_their_owner_alone(kept: Kept, tmp_path: Path) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in kept.directory.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE(kept.directory.stat().st_mode) == 0o700
    before = kept.text("zookeeper/masters")
    with pytest.raises(Conflict, match="exists already"):
        kept.create()
    assert kept.text("zookeeper/masters") == before
    assert not [path for path in kept.directory.parent.iterdir() if path.name.startswith(".")]


def test_secrets_of_another_role_or_that_others_could_read_are_refused(tmp_path: Path) -> None:
    other = Kept(tmp_path / "s", ("gpu", "gpu-research"))
    other.create()
    with pytest.raises(BadConfiguration, match=r"for the role gpu, gpu-research, but the file is for \*"):
        Kept(other.directory, ("*",)).text("master/master-acls.json")
    (other.directory / "zookeeper/masters").chmod(0o644)
    with pytest.raises(BadConfiguration, match="others may have read it"):
        other.text("zookeeper/masters")


def test_firewall_plan_opens_ports_to_their_users_only(kept: Kept) -> None:
    made = plans(kept)
    by_port = {opening.ports: opening.sources for opening in made["g1"].openings}
    masters = ("10.0.0.3", "10.0.0.1", "10.0.0.2")
    assert by_port == {"5051": masters, "31000-32000": ("10.0.1.4", "10.0.0.0/24")}
    by_port = {opening.ports: opening.sources for opening in made["m3"].openings}
    assert by_port["2181"] == (*masters, "10.0.1.4")
    assert by_port["2182-2183"] == masters
    assert by_port["5050"] == by_port["8080"] == ("10.0.1.4", "10.0.0.0/24")
    rules = text(made["g1"], "/etc/mesos-gpu/firewall.nft")
    assert rules.index("tcp dport 5051 ip saddr") < rules.index("tcp dport 5051 drop")


@pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft")
def test_nft_reads_the_rules(kept: Kept, tmp_path: Path) -> None:
    mapped = ["--map-root-user"] if os.geteuid() else []
    for plan in plans(kept).values():
        file = tmp_path / "rules"
        file.write_text(text(plan, "/etc/mesos-gpu/firewall.nft"))
        done = subprocess.run(["unshare", *mapped, "--net", "nft", "--check", "--file", file],
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")


def test_a_host_that_is_not_in_the_file_is_told_those_that_are() -> None:
    done = call("plan", str(FILE), "--host", "m9")
    assert done.exit_code == 2
    assert "m9: not in" in done.output
    assert "g1, m1, m2, m3" in done.output


def test_several_schedulers_meet_where_only_they_may_write(kept: Kept) -> None:
    text_of = FILE.read_text().replace(
        "roles: [zookeeper, master]}", "roles: [zookeeper, master, scheduler], OPTIONS}"
    )
    described = decode(
        yaml.safe_load(text_of.replace("OPTIONS", "options: '--host 10.0.0.1 --insecure-plain-http'")),
        FILE.parent,
        NOTHING,
    )
    assert isinstance(described, Cluster)
    made = {each.host.name: each for each in planned(described, kept, NOTHING, executor=b"pyz")}
    for name in ("m1", "m3"):
        options = variables(made[name], "/etc/mesos-gpu/scheduler.env")["MESOS_GPU_SCHEDULER_OPTIONS"]
        assert " --ha file:///etc/mesos-gpu/ha " in f" {options} "
        (file,) = [each for each in made[name].files if each.path == "/etc/mesos-gpu/ha"]
        assert (file.owner, file.mode, file.secret) == ("mesos-gpu:mesos-gpu", 0o600, "zookeeper/schedulers")
        place = place_of(file.data.decode().strip() if file.data else "")
        assert (place.user, place.path) == ("mesos-gpu-schedulers", "/mesos-gpu")
        assert place.hosts == "10.0.0.3:2181,10.0.0.1:2181,10.0.0.2:2181"
