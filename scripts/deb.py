"""Build Debian packages into dist/: `make deb`. They are for the Debian, the Python and the machine of the
build.

`mesos-gpu` contains the program with all its dependencies below /opt/mesos-gpu, and the scheduler's service;
`mesos-gpu-agent` contains mesos-gpu-executor.pyz and the agent's service. The build fetches only what `make
wheel` fetches: other packages are those that `make setup` has installed by their hashes. The same commit
gives the same bytes: SOURCE_DATE_EPOCH, in seconds, is the time of all files where it is set, else that of
the commit.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mesos_gpu import __version__  # noqa: E402  found by the line above
from mesos_gpu.errors import Unavailable  # noqa: E402
from mesos_gpu.install import agent, scheduler  # noqa: E402
from mesos_gpu.install.files import HostFile  # noqa: E402
from scripts import locks, wheel  # noqa: E402

HOME: Final = "opt/mesos-gpu"  # a virtual environment, so that programs that start `python -m mesos_gpu` work
ARCHIVE: Final = "usr/lib/mesos-gpu/mesos-gpu-executor.pyz"
SCRIPTS: Final = Path(__file__).with_name("debian")  # scripts that dpkg runs
PYTHON: Final = f"python{sys.version_info.major}.{sys.version_info.minor}"
_NEXT: Final = f"{sys.version_info.major}.{sys.version_info.minor + 1}"
CONTROL: Final = f"""\
Package: {{name}}
Version: {__version__}
Architecture: {{architecture}}
Maintainer: The authors of mesos_gpu <root@localhost>
Installed-Size: {{kib}}
Depends: {{depends}}
Recommends: logrotate
Section: admin
Priority: optional
Description: {{what}}
"""
DEPENDS: Final = (
    f"{PYTHON}, python3 (>= {PYTHON[6:]}), python3 (<< {_NEXT}~), libc6 (>= 2.28), libstdc++6, passwd"
)
_COMMAND: Final = """\
#!/opt/mesos-gpu/bin/python -I
import sys

from {module} import {function}

sys.exit({function}())
"""


def build(into: Path, machines: tuple[str, ...], *, by_host: bool, compression: str) -> list[Path]:
    """Make both packages.

    Args:
        into: Directory for the packages.
        machines: Machines whose libraries for shares are included, in the words of `uname -m`.
        by_host: Whether to use this host's compiler, as for `wheel.wheel`.
        compression: Value for `dpkg-deb -Z`.

    Raises:
        MesosGpuError: A program or package is missing here.
        CalledProcessError: A program of the build fails.
    """
    if shutil.which("dpkg-deb") is None:
        raise Unavailable("there is no dpkg-deb", remedy="build on Debian, or apt-get install dpkg")
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mesos-gpu-deb-") as top:
        trees = Path(top, "mesos-gpu"), Path(top, "mesos-gpu-agent")
        made = wheel.wheel(Path(top), machines, by_host=by_host)
        site = _program(trees[0], made)
        _archive(site, trees[1] / ARCHIVE)
        of_agent = agent.files(agent.AgentHost("unused", 0, "v1"))
        of_scheduler = scheduler.files("unused", f"/{HOME}/bin/mesos-gpu", None)
        _host_files(trees[0], of_scheduler)
        _host_files(trees[1], of_agent)
        query = ["dpkg", "--print-architecture"]
        architecture = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
        packages = (
            (trees[0], architecture, DEPENDS, "GPU jobs on Apache Mesos: scheduler and command line"),
            (
                trees[1],
                "all",
                f"python3 (>= {PYTHON[6:]})",
                "GPU jobs on Apache Mesos: programs of GPU hosts",
            ),
        )
        return [_packed(*each, into, compression) for each in packages]


def _program(tree: Path, made: Path) -> Path:
    """Make the virtual environment, and return its directory of packages."""
    home = tree / HOME
    site = home / "lib" / PYTHON / "site-packages"
    site.mkdir(parents=True)
    with zipfile.ZipFile(made) as packed:
        packed.extractall(site)
    for each in locks.read(locks.RUN):
        if each.here:
            _copy(each, site)
    (home / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON[6:]}\n"
    )
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(f"/usr/bin/{PYTHON}")
    (distribution,) = metadata.distributions(name="mesos_gpu", path=[str(site)])
    for entry in distribution.entry_points.select(group="console_scripts"):
        _executable(home / "bin" / entry.name, _COMMAND.format(module=entry.module, function=entry.attr))
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/mesos-gpu").symlink_to(f"/{HOME}/bin/mesos-gpu")
    return site


def _copy(wanted: locks.Locked, site: Path) -> None:
    """Copy a release as pip has installed it here, without its files for other directories, such as programs.

    Raises:
        Unavailable: Another release is installed, or none; or a file has changed since it was installed.
    """
    try:
        here = locks.installed(wanted.name)
    except metadata.PackageNotFoundError as error:
        raise Unavailable(f"{wanted.name} is not installed", remedy="make setup") from error
    if here.version != str(wanted.version):
        raise Unavailable(
            f"{wanted.name} {here.version} is installed, not {wanted.version}", remedy="make setup"
        )
    for file in here.files or []:
        if not _is_foreign(str(file)):
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)
            _see_unchanged(file, target)
            if file.name == "RECORD":  # the list of its files
                lines = target.read_text().splitlines(keepends=True)
                target.write_text("".join(line for line in lines if not _is_foreign(line.split(",")[0])))


def _see_unchanged(file: metadata.PackagePath, copy: Path) -> None:
    """Compare a copy with the digest that pip has recorded; only RECORD has none.

    Raises:
        Unavailable: The copy differs.
    """
    if file.hash is None:
        return
    digest = hashlib.new(file.hash.mode, copy.read_bytes()).digest()
    if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
        raise Unavailable(
            f"{file} has been changed since it was installed", remedy="make setup in a new clone"
        )


def _is_foreign(path: str) -> bool:
    """Return whether a file is for another directory than the packages', or depends on this installation."""
    return path.startswith("..") or path.endswith((".pyc", "/INSTALLER", "/REQUESTED"))


def _archive(site: Path, target: Path) -> None:
    """Build mesos-gpu-executor.pyz from the package, which has the compiled libraries that a checkout lacks."""
    target.parent.mkdir(parents=True)
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r}); from pathlib import Path; "
        f"from mesos_gpu.install.archive import build; build(Path({str(target)!r}))"
    )
    subprocess.run([sys.executable, "-IS", "-B", "-c", code], check=True)


def _host_files(tree: Path, files: Iterable[HostFile]) -> None:
    """Write the host's files other than settings: the operator writes which master to use, and how many GPUs
    there are.
    """
    for file in files:
        target = tree / file.path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_settings:
            target.write_text(file.text)


def _packed(tree: Path, architecture: str, depends: str, what: str, into: Path, compression: str) -> Path:
    name = tree.name
    documents = tree / "usr/share/doc" / name
    documents.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", documents / "copyright")
    if name == "mesos-gpu":
        shutil.copy(ROOT / "CHANGELOG.md", documents)
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    sums = "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
        for path in files
    )
    control = tree / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(
        CONTROL.format(
            name=name,
            architecture=architecture,
            kib=sum(path.stat().st_size for path in files) // 1024,
            depends=depends,
            what=what,
        )
    )
    (control / "md5sums").write_text(sums)
    conffiles = [path for path in files if path.relative_to(tree).parts[0] == "etc"]
    (control / "conffiles").write_text("".join(f"/{path.relative_to(tree)}\n" for path in conffiles))
    for script in sorted(SCRIPTS.glob(f"{name}.*")):
        _executable(control / script.suffix[1:], script.read_text())
    _settle(tree)
    target = into / f"{name}_{__version__}_{architecture}.deb"
    command = ["dpkg-deb", f"-Z{compression}", "--root-owner-group", "--build", str(tree), str(target)]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": _when()}
    )
    return target


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _settle(tree: Path) -> None:
    """Set modes and times that do not depend on the user and the time of the build."""
    when = int(_when())
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (when, when), follow_symlinks=False)


def _when() -> str:
    """Return the time of the files, in seconds since the epoch.

    Raises:
        Unavailable: SOURCE_DATE_EPOCH is not set, and this is not a clone.
    """
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        return epoch
    log = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(log, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable("the time of the files is not known", remedy="set SOURCE_DATE_EPOCH")
    return done.stdout.strip()


def main() -> int:
    """Read the arguments, build, and print where the packages are."""
    parser = wheel.arguments("Build Debian packages of a release.")
    parser.add_argument("--compression", default="xz", help="as of dpkg-deb -Z (default: xz)")
    options = parser.parse_args()
    machines = tuple(options.machine or wheel.MACHINES)

    def build_packages() -> list[Path]:
        return build(options.into, machines, by_host=options.host_compiler, compression=options.compression)

    return wheel.told("deb", build_packages)


if __name__ == "__main__":
    sys.exit(main())
