"""From two bare Debian 12 of debootstrap, with a systemd of their own, to a master and an agent that run a job: by
`mesos-gpu cluster apply`, the Debian packages of `make deb`, and a user with sudo. Then a newer release; then bare
again.
"""

import json
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu import __version__
from mesos_gpu.adapters.simulated_gpus import simulated_gpus, write_inventory
from mesos_gpu.cli import main
from tests.conftest import wait_until
from tests.cuda import compiler_or_skip
from tests.e2e.install import bare
from tests.e2e.install.bare import done, indexes
from tests.remote.booted import Booted, booted_host, missing
from tests.remote.hosts import ROOT, Here, let_in, make_keys, write_file

ADDRESSES = {"m": "127.77.7.2", "g": "127.77.7.3"}  # services of theirs meet none of this machine's
INVENTORY = "/var/lib/mesos-gpu-inventory.json"
NEWER = f"{__version__}.post1"
#: Below these are all files of ours, and what tasks and Mesos have left.
PLACES = "/etc /opt /usr /var/lib /var/log /run"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]


@dataclass
class Site:
    """The hosts, and the file that describes them."""

    directory: Path
    packages: list[Path]
    hosts: dict[str, Booted] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.directory / "cluster.yaml"

    def write(self, packages: list[Path] | None = None, *, agent: bool = True) -> None:
        program, of_agent = packages or self.packages
        settings = f"settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
        more = {
            "m": f"roles: [master, scheduler], options: '--host {ADDRESSES['m']} --default-user nobody'",
            "g": f"roles: [agent], gpus: 1, {settings}",
        }
        hosts = {name: (host, more[name]) for name, host in self.hosts.items() if agent or name != "g"}
        write_file(self.directory / "keys", self.file, hosts, "", f"deb: {program}, agent_deb: {of_agent}")
        text = self.file.read_text()
        self.file.write_text(text.replace("ssh: {", "ssh: {user: ops, "))

    def apply(self, *words: str) -> Result:
        told = CliRunner().invoke(main, ["cluster", "apply", str(self.file), "--yes", *words])
        print(told.output)
        return told

    def asked(self, *words: str) -> str:
        """Run a command on the scheduler's host, as the documents name it; return its output."""
        script = (
            'PATH=$PATH:/opt/mesos-gpu/bin MESOS_GPU_URL=unix:/run/mesos-gpu/api.sock exec mesos-gpu "$@"'
        )
        ran = self.hosts["m"].run(script, *words)
        print(f"# mesos-gpu {' '.join(words)}\n{ran.output}")
        assert ran.code == 0, ran.output
        return ran.output


@pytest.fixture(scope="module")
def site(open_directory: Path) -> Iterator[Site]:
    compiler_or_skip()
    words = [str(ROOT / "scripts/deb.py"), "--into", str(open_directory / "built"), "--host-compiler"]
    told = done([sys.executable, *words, "--machine", platform.machine(), "--compression", "none"])
    made = Site(open_directory, [Path(line) for line in told.splitlines()])
    lower = bare.debian(open_directory / "debian")
    make_keys(open_directory / "keys")
    inventory = open_directory / "inventory.json"
    write_inventory(inventory, simulated_gpus(1, "NVIDIA A100-SXM4-80GB", seed="bare"))
    places = indexes()[1]
    with (
        booted_host(
            open_directory / "keys", open_directory / "m", Here(ADDRESSES["m"]), places, lower=lower
        ) as m,
        booted_host(
            open_directory / "keys", open_directory / "g", Here(ADDRESSES["g"]), places, lower=lower
        ) as g,
    ):
        made.hosts = {"m": m, "g": g}
        for host in (m, g):
            let_in(host, "ops", "ALL=(root) NOPASSWD: ALL")
        assert g.ssh.run(f"cat >{INVENTORY}", stdin=inventory.read_bytes(), timeout_s=30).code == 0
        yield made


def of_release(package: Path, into: Path, version: str, architecture: str = "") -> Path:
    """Pack a package again as one of another release, or for another machine."""
    tree = into / f"{package.stem}-{version}"
    done(["dpkg-deb", "-R", package, tree])
    control = tree / "DEBIAN/control"
    text = control.read_text().replace(f"Version: {__version__}\n", f"Version: {version}\n")
    if architecture:
        text = re.sub(r"^Architecture: .*$", f"Architecture: {architecture}", text, flags=re.MULTILINE)
    control.write_text(text)
    for each in tree.glob("opt/mesos-gpu/lib/python3*/site-packages/mesos_gpu-*.dist-info"):
        each.rename(each.with_name(f"mesos_gpu-{version}.dist-info"))
    for each in tree.glob("opt/mesos-gpu/lib/python3*/site-packages/mesos_gpu/__init__.py"):
        each.write_text(each.read_text().replace(f'"{__version__}"', f'"{version}"'))
    target = into / f"{package.name.split('_')[0]}_{version}_{architecture or 'of'}.deb"
    done(["dpkg-deb", "-Znone", "--root-owner-group", "--build", tree, target])
    return target


def ours(host: Booted) -> list[str]:
    """Files of ours that a host has."""
    script = f"find {PLACES} -xdev -iname '*mesos*' -not -path '*/test-sshd*' 2>/dev/null | sort"
    return host.run(script).output.split()


def leaves_bare(site: Site, before: list[str]) -> None:
    """The agent's host leaves: it is bare again, but for what tasks and Mesos have below /var/lib, and, until the host
    starts anew, below /run."""
    left = site.apply("--deadline", "0")
    assert left.exit_code == 0, left.output
    assert "Removed: g\n" in left.output
    assert {*ours(site.hosts["g"])} - {*before} <= {
        path for path in ours(site.hosts["g"]) if path.startswith(("/var/lib/mesos", "/run/mesos", INVENTORY))
    }
    assert site.hosts["g"].run("systemctl list-units --all --no-legend 'mesos-gpu*'").output == ""
    assert site.hosts["g"].run("pgrep -fa '[m]esos agent|[m]esos-gpu-executor|[m]esos_gpu'").output == ""
    assert {node["state"] for node in json.loads(site.asked("nodes", "--json"))} <= {"lost"}


def test_bare_debians_become_a_cluster_are_upgraded_and_bare_again(site: Site, tmp_path: Path) -> None:
    before = {name: ours(host) for name, host in site.hosts.items()}
    assert site.hosts["m"].run("command -v pip || command -v java || command -v mesos-gpu").code != 0, (
        "it is bare"
    )
    site.write()
    planned = CliRunner().invoke(main, ["cluster", "plan", str(site.file)]).output
    assert f"program: mesos-gpu {__version__} (amd64), needs python3.11" in planned
    first = site.apply()
    assert first.exit_code == 0, first.output
    assert "Changed: m, g\nThe scheduler of m leads.\n" in first.output
    for name, packages in (("m", ["mesos-gpu"]), ("g", ["mesos-gpu", "mesos-gpu-agent"])):
        told = site.hosts[name].run("dpkg-query -W -f '${Package} ${Version}\\n' 'mesos-gpu*'").output
        assert told.split("\n")[:-1] == [f"{each} {__version__}" for each in packages]
    wait_until("its card is there", lambda: "GPU-" in site.asked("gpus"), 180)
    job = site.asked("run", "--gpus", "1", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES; id -u")
    assert "GPU-" in job
    assert site.apply().output == "m: nothing to change\ng: nothing to change\n"

    # A package for another machine is refused, and nothing is changed anywhere.
    foreign = [
        of_release(site.packages[0], tmp_path, "9.0", "arm64"),
        of_release(site.packages[1], tmp_path, "9.0"),
    ]
    site.write(foreign)
    refused = site.apply()
    assert refused.exit_code == 78
    assert "m: the package is for arm64, and the host is amd64" in refused.output

    # A newer release, while a job runs.
    running = site.asked("run", "--detach", "--gpus", "1", "--", "sleep", "3600").split()[0]
    wait_until(
        "it runs", lambda: json.loads(site.asked("show", running, "--json"))["state"] == "running", 120
    )
    newer = [of_release(each, tmp_path, NEWER) for each in site.packages]
    site.write(newer)
    upgraded = site.apply()
    assert upgraded.exit_code == 0, upgraded.output
    assert f"install mesos_gpu {NEWER} in place of {__version__}" in upgraded.output
    assert NEWER in site.asked("status", "--json")
    shown = json.loads(site.asked("show", running, "--json"))
    assert (shown["state"], shown["launches"]) == ("running", 1)
    assert site.apply().output.count("nothing to change") == 2

    # The earlier one in its place is refused unless it is asked for.
    site.write()
    refused = site.apply()
    assert refused.exit_code == 78
    assert f"mesos_gpu {NEWER} is installed there, which is later than {__version__}" in refused.output
    back = site.apply("--downgrade", "--host", "g")
    assert back.exit_code == 0, back.output
    site.asked("kill", running)

    site.write(newer, agent=False)
    leaves_bare(site, before["g"])
