"""Unpacking of the archive into a directory of the host, compiled; in the archive it is `mesos_gpu_unpack`."""

import compileall
import fcntl
import os
import py_compile
import shutil
import subprocess
import sys
import tempfile
import zipfile

PREFIX = "files/"  # of members that are unpacked to the host


def unpack(archive: str, target: str) -> None:
    """Unpack and compile an archive's files into a directory, which appears complete or not at all.

    Concurrent calls wait for each other. Leftovers of a call that was killed are removed.

    Raises:
        OSError: The directory cannot be written.
    """
    top = os.path.dirname(target)
    os.makedirs(top, mode=0o755, exist_ok=True)
    turn = os.open(os.path.join(top, ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if os.path.isdir(target):
            return
        for name in os.listdir(top):
            if name.startswith(".part-"):
                shutil.rmtree(os.path.join(top, name))
        part = tempfile.mkdtemp(dir=top, prefix=".part-")
        _fill(archive, part, target)
        os.chmod(part, 0o755)  # nosec B103 # like any installed program: all may read it
        os.rename(part, target)
    finally:
        os.close(turn)


def _fill(archive: str, part: str, target: str) -> None:
    """Extract the archive's files into a directory, and compile them for their final place."""
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            if not member.filename.startswith(PREFIX) or member.is_dir():
                continue
            path = os.path.join(part, member.filename.removeprefix(PREFIX))
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            with packed.open(member) as source, open(path, "xb") as file:
                shutil.copyfileobj(source, file)
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                os.fsync(file.fileno())
    # Compiled files are not checked against sources at each start: the directory's name is a digest of its contents.
    done = compileall.compile_dir(
        part, quiet=1, stripdir=part, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    if not done:
        raise OSError(f"the files of {archive} cannot be compiled")
    _flatten(part, target)
    os.sync()


def _flatten(part: str, target: str) -> None:
    """Pack the modules of executors into one file. Without it executors start from single files, and slower."""
    code = (
        f"import sys; sys.path.append({part!r}); from pathlib import Path; from mesos_gpu.install import flat\n"
        f"data = flat.packed(Path({part!r}), flat.EXECUTOR, {target!r})\n"
        f"Path({part!r}, flat.NAME).write_bytes(data)\n"
    )
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"mesos-gpu-executor starts slowly from {target}: {done.stderr}", file=sys.stderr)
