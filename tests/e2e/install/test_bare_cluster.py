"""From a bare Debian 12 of debootstrap to a cluster that runs a job, by `mesos-gpu cluster apply` and a wheel alone."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from mesos_gpu.adapters.simulated_gpus import simulated_gpus, write_inventory
from mesos_gpu.cli import main
from tests.conftest import wait_until
from tests.cuda import compiler_or_skip
from tests.remote.hosts import ROOT, Here, RemoteHost, make_keys, missing, remote_host, write_file

ADDRESS = "127.77.7.1"  # services of it meet none of this machine's
INVENTORY = "/var/lib/mesos-gpu-inventory.json"
#: What a machine has by which it is reached and its services are started, besides Python.
HAS = ("ca-certificates", "openssh-server", "python3", "systemd")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="needs debootstrap"),
]


def done(command: Sequence[str | Path], timeout_s: float = 600) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(open_directory: Path) -> Path:
    compiler_or_skip()
    words = [str(ROOT / "scripts/wheel.py"), "--into", str(open_directory / "wheel"), "--host-compiler"]
    return Path(done([sys.executable, *words, "--machine", platform.machine()]).strip())


def indexes() -> tuple[str, list[Path]]:
    """What pip is told here, as its file, and the directories that are named there."""
    lines, places = [], []
    for line in done([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        name, _, value = line.partition("=")
        value = value.strip("'")
        lines.append(f"{name.rpartition('.')[2]} = {value}\n")
        named = [word for word in value.split() if word.startswith(("/", "file:/"))]
        # An index in a directory has its files beside it.
        places += [
            Path(word) if word[0] == "/" else Path(word.removeprefix("file://")).parent for word in named
        ]
    return "[global]\n" + "".join(dict.fromkeys(lines)), [path for path in places if path.is_dir()]


@pytest.fixture(scope="module")
def debian(open_directory: Path) -> Path:
    """Files of a Debian that has what a minimal one has, Python, and what it is reached by."""
    root = open_directory / "debian"
    form = ["--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Created-By: Packages", "Component: main"]
    told = {tuple(line.split()) for line in done(["apt-get", "indextargets", *form]).splitlines()}
    sources = sorted(
        (each[1], each[2]) for each in told if each[0] == "Debian" and each[1].startswith("bookworm")
    )
    mirror = [uri for suite, uri in sources if suite == "bookworm"]
    done(
        ["debootstrap", "--variant=minbase", f"--include={','.join(HAS)}", "bookworm", root, *mirror[:1]], 900
    )
    if sources:
        lines = [f"deb {uri} {suite} main\n" for suite, uri in sources]
        (root / "etc/apt/sources.list").write_text("".join(lines))
    (root / "etc/pip.conf").write_text(indexes()[0])
    for name in ("resolv.conf", "hosts", "ssl/certs/ca-certificates.crt"):
        (root / "etc" / name).unlink(missing_ok=True)
        shutil.copy(Path("/etc", name), root / "etc" / name)
    return root


@pytest.fixture(scope="module")
def host(debian: Path, open_directory: Path) -> Iterator[RemoteHost]:
    make_keys(open_directory / "keys")
    directory = open_directory / "host"
    places = indexes()[1]
    with remote_host(open_directory / "keys", directory, Here(ADDRESS), places, lower=debian) as made:
        yield made


def test_a_bare_debian_becomes_a_cluster_that_runs_a_job(
    host: RemoteHost, wheel: Path, open_directory: Path
) -> None:
    assert host.run("command -v pip || command -v java || command -v mesos-gpu").code != 0, "it is bare"
    inventory = open_directory / "inventory.json"
    write_inventory(inventory, simulated_gpus(1, "NVIDIA A100-SXM4-80GB", seed="bare"))
    host.ssh.run(f"cat >{INVENTORY}", stdin=inventory.read_bytes(), timeout_s=30)
    file = open_directory / "cluster.yaml"
    settings = f"settings: {{MESOS_GPU_INVENTORY: {INVENTORY}, MESOS_GPU_ISOLATION: 'off'}}"
    more = (
        f"roles: [zookeeper, master, scheduler, agent], gpus: 1, {settings}, "
        f"options: '--host {ADDRESS} --default-user nobody'"
    )
    write_file(
        host.keys, file, {"one": (host, more)}, "zookeeper_heap_mib: 96\n",
        f"wheel: {wheel}, requirements: {ROOT / 'requirements-run.lock'}",
    )  # fmt: skip
    told = CliRunner().invoke(main, ["cluster", "apply", str(file), "--yes"])
    print(told.output)
    assert told.exit_code == 0, told.output
    program = ["/opt/mesos-gpu/bin/mesos-gpu", "--url", "unix:/run/mesos-gpu/api.sock"]

    def said(*words: str) -> str:
        ran = host.run('exec "$@"', *program, *words)
        assert ran.code == 0, ran.output
        print(f"# mesos-gpu {' '.join(words)}\n{ran.output}")
        return ran.output

    wait_until("its card is there", lambda: "GPU-" in said("gpus"), 180)
    assert ADDRESS in said("nodes")
    assert said("run", "--gpus", "1", "--", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").count("GPU-")
    again = CliRunner().invoke(main, ["cluster", "apply", str(file), "--yes"])
    assert again.output == "one: nothing to change\n"
