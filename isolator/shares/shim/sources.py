"""What our libraries for shares are built from, and what names a build. Lean: the executor imports it."""

import functools
from pathlib import Path
from typing import Final

from mesos_gpu.policy.gpus.volume_paths import VOLUME_PATH
from mesos_gpu.wire.digest import blake2b
from volumes.keys import variant_of

SOURCES: Final = Path(__file__).parent
#: --disable-new-dtags: a DT_RPATH goes before LD_LIBRARY_PATH, so that no variable puts another library in the
#: driver's place. nodelete: what a program closes and opens again still knows what is allocated.
FLAGS: Final = (
    *(
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-shared",
        "-fPIC",
        "-fvisibility=hidden",
        "-U_FORTIFY_SOURCE",
    ),
    *(
        "-Wl,-Bsymbolic",
        "-Wl,--no-as-needed",
        "-Wl,--build-id=none",
        "-Wl,--disable-new-dtags",
        "-Wl,-z,now",
        "-Wl,-z,nodelete",
    ),
    f"-Wl,-rpath,$ORIGIN:{VOLUME_PATH}/lib64",
)


@functools.cache
def digest() -> str:
    """The digest of all that decides what is built, hexadecimal."""
    told = blake2b("\n".join(FLAGS).encode(), digest_size=32)
    for path in sorted((*SOURCES.glob("*.c"), *SOURCES.glob("*.h"))):
        told.update(f"\n{path.name}\n".encode() + path.read_bytes())
    return told.hexdigest()


def variant() -> str:
    """What driver volumes with the libraries of this version are called: see `volumes.shim`."""
    return variant_of(digest())
