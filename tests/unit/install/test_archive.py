"""`mesos-gpu-executor.pyz`: what is in it, that it runs by a bare Python, what it refuses to run."""

import ast
import hashlib
import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest

from mesos_gpu.adapters.simulated_gpus import simulated_gpus, write_inventory
from mesos_gpu.errors import MesosGpuError
from mesos_gpu.install import archive
from mesos_gpu.install.unpack import PREFIX, unpack
from mesos_gpu.scheduler.delivery.archive import command
from mesos_gpu.scheduler.options import parse

PYTHON = os.path.realpath(sys.executable)
BEGUN = (
    "KeyError: 'MESOS_AGENT_ENDPOINT'"  # it has imported all that each executor needs, and asks for its agent
)


#: An archive of few files: how archives begin does not depend on what they contain.
FEW = {
    "isolator/__init__.py": b"",
    "isolator/__main__.py": b"def main():\n    raise KeyError('MESOS_AGENT_ENDPOINT')\n",
}


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """Return the files of the archive by name."""
    return archive.contents()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive.build(tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build an archive of few files."""
    path = tmp_path_factory.mktemp("archive") / "small.pyz"
    path.write_bytes(archive.packed(FEW))
    return path


@pytest.fixture(scope="module")
def started(built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Start the archive for the first time; return the directory of the host, and what it wrote to stderr."""
    node = tmp_path_factory.mktemp("node")
    return node, start(built, node, "executor").stderr


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("programs") / "tree"
    unpack(str(built), str(target))
    return target


def start(built: Path, node: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [PYTHON, "-IS", str(built), *words]
    env = {"MESOS_GPU_NODE_DIR": str(node)}
    return subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=120, check=False)


def trees(node: Path) -> list[Path]:
    return sorted(path for path in (node / "programs").iterdir() if path.is_dir())


@pytest.mark.usefixtures("built")  # it has parsed the modules
def test_archive_has_all_imports_of_its_modules() -> None:
    assert archive.unmet() == {}


@pytest.mark.on_change("install")
def test_archive_modules_are_found_by_a_bare_python(unpacked: Path) -> None:
    names = [
        ".".join(path.relative_to(unpacked).with_suffix("").parts).removesuffix(".__init__")
        for top in archive.OWN
        for path in (unpacked / top).rglob("*.py")
    ]
    # Those that run as files of their own do something at once, or need what is left out.
    alone = {
        "isolator.secrets.attaching",
        "isolator.runs.joined",
        "mesos_gpu.adapters.secrets.packaged",
        "mesos_gpu.install.flat_loader",
    }
    wanted = sorted(set(names) - alone)
    code = f"import sys; sys.path.insert(0, {str(unpacked)!r})\nfor name in {wanted!r}: __import__(name)"
    done = subprocess.run([PYTHON, "-IS", "-c", code], env={}, cwd="/", capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(names) > 200


def test_archive_begins_as_an_executor_and_unpacks_once(built: Path, started: tuple[Path, str]) -> None:
    node, said = started
    assert BEGUN in said
    (tree,) = trees(node)
    made = tree.stat().st_ino
    assert (tree.stat().st_mode & 0o777, (tree / "isolator/__main__.py").stat().st_mode & 0o777) == (
        0o755,
        0o644,
    )
    assert list(tree.glob("isolator/__pycache__/program.*.pyc")), "compiled"
    assert BEGUN in start(built, node, "executor").stderr
    assert [path.stat().st_ino for path in trees(node)] == [made]


@pytest.mark.on_change("install")
@pytest.mark.parametrize("program", ["monitor", "keeper"])
def test_archive_begins_as_another_program(built: Path, started: tuple[Path, str], program: str) -> None:
    assert BEGUN in start(built, started[0], program).stderr


@pytest.mark.on_change("install")
def test_archive_says_whether_the_host_is_fit(built: Path, started: tuple[Path, str], tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.json"
    write_inventory(inventory, simulated_gpus(1, "NVIDIA A100-SXM4-80GB", seed="fit"))
    env = {
        "MESOS_GPU_NODE_DIR": str(started[0]),
        "MESOS_GPU_INVENTORY": str(inventory),
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    command = [PYTHON, "-IS", str(built), "doctor"]
    done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode in (0, 1), done.stderr) == (True, "")
    levels = {line[:4].strip() for line in done.stdout.splitlines() if not line.startswith(" ")}
    assert levels <= {"OK", "WARN", "FAIL"}
    assert {"isolation", "ports", "namespaces", "ledger"} <= set(done.stdout.split())
    assert "No module named" not in done.stdout
    assert ("FAIL" in levels) is (done.returncode == 1)


def test_archive_started_many_times_at_once_makes_one_directory(small: Path, tmp_path: Path) -> None:
    left = tmp_path / "programs" / ".part-of-one-that-was-killed"
    left.mkdir(parents=True)
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda _: start(small, tmp_path, "executor").stderr, range(4)))
    assert all(BEGUN in each for each in said), said
    assert len(trees(tmp_path)) == 1
    assert not left.exists()


@pytest.mark.parametrize("which", ["tree", "above"])
def test_archive_runs_nothing_that_others_could_have_changed(small: Path, tmp_path: Path, which: str) -> None:
    start(small, tmp_path, "executor")
    (tree,) = trees(tmp_path)
    weak = tree if which == "tree" else tree.parent
    weak.chmod(0o777)
    done = start(small, tmp_path, "executor")
    assert done.returncode == 1
    assert f"{weak} is not a directory that only its owner can write" in done.stderr
    assert BEGUN not in done.stderr


@pytest.mark.parametrize("words", [(), ("sh",), ("executor", "monitor")])
def test_archive_names_the_right_words_for_wrong_ones(
    small: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = start(small, tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "executor|monitor|keeper" in done.stderr
    assert not (tmp_path / "programs").exists()


def test_archive_of_the_same_sources_has_the_same_bytes(built: Path, files: dict[str, bytes]) -> None:
    assert archive.packed(files) == built.read_bytes()
    with zipfile.ZipFile(built) as packed:
        assert {name for name in packed.namelist() if name.startswith(PREFIX)} == {
            PREFIX + each for each in files
        }


def test_archive_of_other_sources_has_another_directory(small: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    other.write_bytes(archive.packed({**FEW, "isolator/program.py": b"pass\n"}))
    digests = set()
    for path in (small, other):
        with zipfile.ZipFile(path) as packed:
            begin = ast.parse(packed.read("__main__.py").decode())
        (line,) = [
            node for node in begin.body if isinstance(node, ast.Assign) and "DIGEST" in ast.unparse(node)
        ]
        digests.add(ast.literal_eval(line.value))
    assert {len(digest) for digest in digests} == {32}
    assert len(digests) == 2


def test_archive_has_the_licences_of_its_packages(files: dict[str, bytes]) -> None:
    for distribution in archive.OTHERS:
        of_it = [name for name in files if name.lower().replace("_", "-").startswith(distribution)]
        assert any(name.endswith(("LICENSE", "METADATA")) for name in of_it), distribution


def test_archive_contents_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_sources", dict)
    monkeypatch.setattr(archive, "OTHERS", {"no-such-distribution": "none"})
    with pytest.raises(MesosGpuError, match="no-such-distribution is not installed"):
        archive.contents()


# --- brought by a URI


def fetch(
    built: Path, node: Path, digest: str, program: str = "executor"
) -> subprocess.CompletedProcess[str]:
    where = f"{built.as_uri()}#sha256={digest}"
    assert parse.archive(None, None, where) == where  # type: ignore[arg-type]
    env = {"MESOS_GPU_NODE_DIR": str(node), "PATH": f"{node}/bin:{os.environ['PATH']}"}
    (node / "bin").mkdir(exist_ok=True)
    if not (node / "bin/python3").exists():
        (node / "bin/python3").symlink_to(PYTHON)
    words = ["/bin/sh", "-c", command(where, program)]
    return subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, timeout=120, check=False)


def test_archive_is_fetched_once_and_run_from_a_directory_of_root(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / "of the server.pyz"
    copy.write_bytes(small.read_bytes())
    digest = hashlib.sha256(small.read_bytes()).hexdigest()
    copy = copy.rename(tmp_path / "of-the-server.pyz")
    assert BEGUN in fetch(copy, tmp_path, digest).stderr
    assert (tmp_path / f"programs/{digest}.pyz").read_bytes() == copy.read_bytes()
    copy.unlink()
    assert BEGUN in fetch(copy, tmp_path, digest, "monitor").stderr, "the second time it is not asked for"


def test_another_archive_than_the_one_named_is_not_run(small: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    other.write_bytes(small.read_bytes() + b"\n")
    digest = hashlib.sha256(small.read_bytes()).hexdigest()
    done = fetch(other, tmp_path, digest)
    assert done.returncode == 1
    assert "nothing of it is run" in done.stderr
    assert list((tmp_path / "programs").iterdir()) == []


@pytest.mark.parametrize(
    "where",
    [
        "mesos-gpu.pyz",
        "https://h/x.pyz",
        "https://h/x.pyz#sha256=ab",
        "ftp://h/x#sha256=" + "a" * 64,
        "/a b",
        "",
    ],
)
def test_archive_option_is_refused_with_both_forms(where: str) -> None:
    with pytest.raises(click.BadParameter, match=r"absolute path.*#sha256="):
        parse.archive(None, None, where)  # type: ignore[arg-type]
