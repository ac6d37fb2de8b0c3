"""The one file of modules: who takes modules from it, who does not, and which they are."""

import marshal
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mesos_gpu.install import flat
from mesos_gpu.libmesos import helpers

PYTHON = os.path.realpath(sys.executable)
#: What comes with an executor's start beside what an empty interpreter has. Each costs every task of a node some of a
#: millisecond: import what only few tasks need where they need it.
OF_EXECUTOR = frozenset(Path(__file__, "../../../data/executor_imports.txt").resolve().read_text().split())
OF_HELPER = frozenset(
    [
        "_collections_abc", "_json", "_stat", "genericpath", "mesos_gpu", "mesos_gpu.libmesos",
        "mesos_gpu.libmesos.launching", "os", "os.path", "posixpath", "stat",
    ]
)  # fmt: skip


def run(code: str, *flags: str) -> str:
    done = subprocess.run(
        [PYTHON, *(flags or ("-IS",)), "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("libexec")
    helpers.write(directory, directory / "no library")
    return directory


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    for name, text in {
        "isolator/__init__.py": "",
        "isolator/one.py": "from isolator.inner import two\nvalue = two.value + 1\n",
        "isolator/inner/__init__.py": "",
        "isolator/inner/two.py": "value = 1\ndef late():\n    from isolator.inner import three\n    return three\n",
        "isolator/inner/three.py": "value = 3\n",
    }.items():
        path = tmp_path / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "root" / "mesos_gpu").mkdir()
    return tmp_path / "root"


def made(packages: Path) -> Path:
    path = packages.parent / "made.flat"
    path.write_bytes(flat.packed(packages, ["isolator.one"]))
    return path


def where(packages: Path, file: Path, then: str) -> str:
    return run(flat.begin(str(file), str(packages)) + then)


def test_modules_come_from_the_file_and_others_from_the_directory(packages: Path) -> None:
    file = made(packages)
    told = "import isolator.one as m\nprint(m.value, type(m.__loader__).__name__, m.__file__)\n"
    assert where(packages, file, told) == f"2 Flat {packages}/isolator/one.py\n"
    late = "from isolator.inner import two\nm = two.late()\nprint(m.value, type(m.__loader__).__name__)\n"
    assert where(packages, file, late) == "3 SourceFileLoader\n"


@pytest.mark.parametrize("fault", ["absent", "empty", "of another Python"])
def test_without_a_file_for_it_a_python_uses_the_directory(packages: Path, fault: str) -> None:
    file = made(packages)
    if fault == "absent":
        file.unlink()
    else:
        file.write_bytes(b"" if fault == "empty" else b"\0\0\r\n" + file.read_bytes()[4:])
    told = "import isolator.one as m\nprint(m.value, type(m.__loader__).__name__)\n"
    assert where(packages, file, told) == "2 SourceFileLoader\n"


def test_a_module_that_is_not_there_is_not_packed_in_silence(packages: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"isolator\.none"):
        flat.packed(packages, ["isolator.none"])


def test_flat_file_is_kept_until_a_source_changes(packages: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    data = flat.kept(packages, ["isolator.one"], cache)
    (file,) = cache.iterdir()
    assert (file.read_bytes(), file.stat().st_mode & 0o777, cache.stat().st_mode & 0o777) == (
        data,
        0o600,
        0o700,
    )
    file.write_bytes(b"as it was kept")
    assert flat.kept(packages, ["isolator.one"], cache) == b"as it was kept"
    (packages / "isolator/inner/three.py").write_text("value = 33\n")
    assert flat.kept(packages, ["isolator.one"], cache) == data
    assert len(list(cache.iterdir())) == 2, "another installation may still need its own"
    os.utime(file, (1, 1))
    (packages / "isolator/inner/three.py").write_text("value = 333\n")
    flat.kept(packages, ["isolator.one"], cache)
    assert file not in list(cache.iterdir())


@pytest.mark.parametrize("fault", ["file", "directory", "link"])
def test_flat_file_that_others_could_write_is_not_used(packages: Path, tmp_path: Path, fault: str) -> None:
    cache = tmp_path / "cache"
    data = flat.kept(packages, ["isolator.one"], cache)
    (file,) = cache.iterdir()
    file.write_bytes(b"something else")
    if fault == "link":
        file.rename(tmp_path / "elsewhere")
        file.symlink_to(tmp_path / "elsewhere")
    else:
        (file if fault == "file" else cache).chmod(0o777)
    assert flat.kept(packages, ["isolator.one"], cache) == data


def test_flat_file_is_made_each_time_without_a_cache(packages: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    data = flat.kept(packages, ["isolator.one"], tmp_path / "cache")
    assert marshal.loads(data[4:])[1][0].keys() == {
        "isolator",
        "isolator.one",
        "isolator.inner",
        "isolator.inner.two",
    }


def imported(launcher: Path, module: str) -> set[str]:
    """Modules that an import adds to those of an empty interpreter."""
    begin = flat.begin(str(launcher / flat.NAME), helpers.ROOT)
    listing = "import sys; print(*sys.modules)"
    return set(run(f"{begin}import {module}\n{listing}").split()) - set(run(listing).split()) - {"marshal"}


def ours(modules: Sequence[str]) -> set[str]:
    """Modules of this repository among them."""
    return {each for each in modules if each.partition(".")[0] in ("isolator", "mesos_gpu", "volumes")}


def test_imports_of_an_executor_at_its_start_are_bounded(launcher: Path) -> None:
    assert imported(launcher, "isolator.executor.main") - OF_EXECUTOR == set()


def test_imports_of_the_launch_helper_are_bounded(launcher: Path) -> None:
    assert imported(launcher, "mesos_gpu.libmesos.launching") - OF_HELPER == set()


def test_modules_written_in_python_come_from_the_file(launcher: Path) -> None:
    begin = flat.begin(str(launcher / flat.NAME), helpers.ROOT)
    listing = "print(*[f'{type(m.__loader__).__name__}:{name}' for name, m in sys.modules.items()])"
    told = run(f"{begin}import isolator.executor.main, mesos_gpu.libmesos.launching\n{listing}").split()
    assert {f"Flat:{name}" for name in ours([*OF_EXECUTOR, *OF_HELPER])} <= set(told)
    others = {each for each in told if each.startswith("SourceFileLoader:")}
    assert others - set(run(f"import sys\n{listing}").split()) == set()


def test_another_build_of_python_has_its_own_library(packages: Path) -> None:
    (packages / "isolator" / "one.py").write_text("import keyword\nvalue = keyword.__loader__\n")
    file = made(packages)
    told = "import isolator.one as m\nprint(type(m.value).__name__, type(m.__loader__).__name__)\n"
    data = file.read_bytes()
    loader, (modules, standard, version, size) = marshal.loads(data[4:])
    assert version == sys.version
    for build, whose in ((version, "Flat"), (f"{version} built anew", "SourceFileLoader")):
        head = marshal.dumps((loader, (modules, standard, build, size)))
        file.write_bytes(data[:4] + head + data[len(data) - size :])
        assert where(packages, file, told) == f"{whose} Flat\n"


@pytest.mark.on_change("install")
def test_all_other_modules_of_the_isolator_go_with_those_of_the_file(launcher: Path) -> None:
    """They are imported later, if at all, and as they were written."""
    root = Path(helpers.ROOT)
    alone = {
        "isolator.secrets.attaching",
        "isolator.runs.joined",
    }  # as files of their own they do something at once
    files = [
        path.relative_to(root) for path in (root / "isolator").rglob("*.py") if path.name != "__main__.py"
    ]
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files} - alone
    begin = flat.begin(str(launcher / flat.NAME), helpers.ROOT)
    program = f"{begin}import isolator.executor.main\nfor name in {sorted(names)!r}: __import__(name)\n"
    assert len(names) > 80
    assert run(program + "print('all')", "-I") == "all\n"
