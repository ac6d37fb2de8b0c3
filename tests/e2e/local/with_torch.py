"""PyTorch and Jupyter as the documents expect them: on the PATH of hosts, and in images of their names."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.doubles.images import layer, save

PYTHON: Final = Path("/usr/bin/python3")  # that of tasks, whose PATH is fixed
PACKAGES: Final = ("torch==2.13.0+cpu", "numpy", "jupyterlab")
_FORMS: Final = ("", ":latest")  # of an image without a tag
_LEFT_OUT: Final = ("__pycache__", "include", "tests", "test")  # not needed to run programs
_SHELL: Final = "/bin/sh"
_IMAGE_DIRECTORIES: Final = ("dev", "etc", "home", "home/jovyan", "mnt", "proc", "root", "sys", "tmp")


class NotInstalled(Exception):
    """The packages could not be installed."""


def install(directory: Path) -> None:
    """Make an environment of Python with the packages, which every user may read.

    Args:
        directory: Directory of the environment, which does not exist.

    Raises:
        NotInstalled: The index does not answer or lacks a package.
    """
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", directory], check=True, timeout=120)
    asked = [sys.executable, "-m", "pip", "--python", f"{directory}/bin/python", "install", "--quiet"]
    done = subprocess.run(
        [*asked, "--only-binary", ":all:", *PACKAGES], capture_output=True, text=True, timeout=900
    )
    if done.returncode != 0:
        raise NotInstalled(done.stderr.strip()[-200:])


def images(directory: Path, environment: Path, names: Sequence[str]) -> None:
    """Write archives of images with an environment of Python, for agents that read a directory.

    Args:
        directory: Directory of the archives.
        environment: Environment, which has the same path in the images.
        names: Names of the images, without a tag.
    """
    whole = directory / "layer.tar"
    listed = sorted({str(path).lstrip("/") for path in _system_files(environment)})
    twice = str(environment / "lib64").lstrip("/")  # a link to `lib`
    left_out = [f"--exclude={name}" for name in (*_LEFT_OUT, twice)]
    subprocess.run(
        ["tar", "--dereference", "-cf", whole, "-C", "/", *left_out, *listed], check=True, timeout=600
    )
    passwd = Path("/etc/passwd").read_bytes()
    rest = layer(
        {
            **dict.fromkeys(_IMAGE_DIRECTORIES),
            "etc/passwd": passwd,
            "etc/group": Path("/etc/group").read_bytes(),
        }
    )
    config = {"Env": [f"PATH={environment}/bin:/usr/bin:/bin", "HOME=/home/jovyan"]}
    for name in names:
        first = save(directory, name + _FORMS[0], [whole, rest], config)
        for form in _FORMS[1:]:
            (directory / f"{name}{form}.tar").hardlink_to(first)
    whole.unlink()


def _system_files(environment: Path) -> Iterator[Path]:
    """Yield what an image needs to run the programs of an environment: files, and directories with all in them."""
    python = PYTHON.resolve()
    library = Path(f"/usr/lib/{python.name}")
    yield from (environment, PYTHON, python, library, Path(_SHELL), Path("/usr/bin/env"))
    programs = [python, Path(_SHELL), Path("/usr/bin/env"), *library.rglob("*.so")]
    programs += [path for path in environment.rglob("*.so*") if path.is_file()]
    listed = subprocess.run(
        ["ldd", *programs], capture_output=True, text=True, timeout=120, check=False
    ).stdout  # its status is 1 where a file is no program
    for line in listed.splitlines():
        words = [word for word in line.split() if word.startswith("/") and not word.endswith(":")]
        yield from (Path(word) for word in words[-1:] if environment not in Path(word).resolve().parents)
