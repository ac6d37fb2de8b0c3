"""Files of a Debian 12 that has Python, and by what it is reached and its services are started, and nothing else."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

#: What a machine has by which it is reached and its services are started, besides Python.
HAS = ("ca-certificates", "openssh-server", "python3", "sudo", "systemd", "systemd-sysv")


def done(command: Sequence[str | Path], timeout_s: float = 600) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
    return ran.stdout


def indexes() -> tuple[str, list[Path]]:
    """Return the configuration of pip on this machine as a file, and the directories that it names."""
    text, places = _told()
    return text, [path for path in places if path.is_dir()]


def _told() -> tuple[str, list[Path]]:
    """Return the configuration of pip on this machine as a file, and the directories and files that it names."""
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
    return "[global]\n" + "".join(dict.fromkeys(lines)), [path for path in places if path.exists()]


def debian(root: Path) -> Path:
    """Make its files below a directory, by debootstrap, from the mirror that apt knows here."""
    form = ["--format", "$(ORIGIN) $(CODENAME) $(REPO_URI)", "Created-By: Packages", "Component: main"]
    told = {tuple(line.split()) for line in done(["apt-get", "indextargets", *form]).splitlines()}
    sources = sorted(
        (each[1], each[2]) for each in told if each[0] == "Debian" and each[1].startswith("bookworm")
    )
    mirror = [uri for suite, uri in sources if suite == "bookworm"]
    # What it mounts ends with it, also when it is killed.
    alone: list[str | Path] = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    words: list[str | Path] = [
        "debootstrap",
        "--variant=minbase",
        f"--include={','.join(HAS)}",
        "bookworm",
        root,
        *mirror[:1],
    ]
    done([*alone, *words], 900)
    if sources:
        lines = [f"deb {uri} {suite} main\n" for suite, uri in sources]
        (root / "etc/apt/sources.list").write_text("".join(lines))
    text, places = _told()
    (root / "etc/pip.conf").write_text(text)
    for file in filter(Path.is_file, places):
        at = root / file.relative_to("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, at)
    for name in ("resolv.conf", "hosts", "ssl/certs/ca-certificates.crt"):
        (root / "etc" / name).unlink(missing_ok=True)
        shutil.copy(Path("/etc", name), root / "etc" / name)
    return root
