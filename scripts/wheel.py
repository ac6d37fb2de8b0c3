"""Build the release: a wheel with the libraries that enforce shares of GPUs, for x86-64 and arm64. `make
wheel`.

It is made in a directory of its own, from the files of this checkout; only the wheel is written into the
checkout. A host that installs the wheel needs no C compiler.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from isolator.shares.shim.build import compile_into, compiler, zig  # noqa: E402  found by the line above
from mesos_gpu.errors import MesosGpuError, Unavailable  # noqa: E402

MACHINES: Final = ("x86_64", "aarch64")
PACKAGED: Final = (
    "setup.cfg", "pyproject.toml", "LICENSE", "README.md", "mesos_gpu", "isolator", "volumes", "marathon_templates"
)  # fmt: skip
DRIVER: Final = Path("mesos_gpu/vendored")
BUILT: Final = Path("isolator/shares/shim/built")  # below it one directory for each machine


def wheel(into: Path, machines: tuple[str, ...], *, by_host: bool) -> Path:
    """Make the wheel.

    Args:
        into: Directory for the wheel.
        machines: Machines in the words of `uname -m`.
        by_host: Whether to use this host's compiler, which builds for no other machine, instead of the pinned
            zig.

    Raises:
        MesosGpuError: There is no compiler, or it fails.
        CalledProcessError: The wheel cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-wheel-") as top:
        tree = Path(top, "tree")
        _copy(tree)
        _bring_driver(tree)
        for machine in machines:
            command = compiler(os.environ) if by_host else zig(os.environ, machine)
            target = tree / BUILT / machine
            target.parent.mkdir(parents=True, exist_ok=True)
            if command is None:
                raise Unavailable("there is no C compiler", remedy="leave --host-compiler out")
            compile_into(target, command)
        made = Path(top, "wheel")
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-w", str(made), str(tree)], check=True)
        (file,) = made.glob("*.whl")
        into.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(file, into))


def _copy(tree: Path) -> None:
    """Copy the sources of the wheel, without what an earlier build left beside them."""
    tree.mkdir()
    leave = shutil.ignore_patterns("__pycache__", BUILT.name, "*.egg-info")
    for name in PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=leave)
        else:
            shutil.copy(ROOT / name, tree)


def _bring_driver(tree: Path) -> None:
    """Copy pymesos as `make setup` has installed it by its hash.

    The wheel contains it, as it could not be installed otherwise: it needs a distribution that does not
    build.

    Raises:
        Unavailable: pymesos is not installed.
    """
    try:
        driver = metadata.distribution("pymesos")
    except metadata.PackageNotFoundError as error:
        raise Unavailable(
            "pymesos is not installed: the wheel has to contain it", remedy="make setup"
        ) from error
    target = tree / DRIVER
    (target / "pymesos").mkdir(parents=True)
    (target / "__init__.py").write_text('"""Packages of others, as they were released."""\n')
    for file in driver.files or []:
        if len(file.parts) == 2 and file.parts[0] == "pymesos" and file.suffix == ".py":
            shutil.copy(str(file.locate()), target / file)
    words = driver.read_text("METADATA") or driver.read_text("PKG-INFO") or ""  # of a wheel, or of an egg
    (target / "pymesos/METADATA.txt").write_text(words)


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of all programs that build a release: `into`, `machine`,
    `host_compiler`.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--into", type=Path, default=ROOT / "dist", help="a directory (default: dist)")
    parser.add_argument("--machine", action="append", choices=MACHINES, help="only for this one; repeatable")
    parser.add_argument("--host-compiler", action="store_true", help="this host's compiler instead of zig")
    return parser


def told(name: str, build: Callable[[], Iterable[Path]]) -> int:
    """Build and print the paths, or print the reason for a failure under `name`; return the exit status."""
    try:
        for path in build():
            print(path)
    except (MesosGpuError, subprocess.CalledProcessError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Read the arguments, build, and print where the wheel is."""
    options = arguments("Build the wheel of a release.").parse_args()
    machines = tuple(options.machine or MACHINES)
    return told("wheel", lambda: [wheel(options.into, machines, by_host=options.host_compiler)])


if __name__ == "__main__":
    sys.exit(main())
