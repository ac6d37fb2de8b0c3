"""Sources and compiler flags of our CUDA libraries, and the digest that names a build. Lean: the executor
imports it.
"""

import functools
from pathlib import Path
from typing import Final

from mesos_gpu.policy.gpus.volume_paths import VOLUME_PATH
from mesos_gpu.wire.digest import blake2b
from volumes.keys import variant_of

SOURCES: Final = Path(__file__).parent
#: --disable-new-dtags: a DT_RPATH precedes LD_LIBRARY_PATH, so that no variable replaces the driver's
#: library. nodelete: the library keeps its account of allocations when a program closes and opens it again.
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
    """Return the hexadecimal digest of all that determines a build."""
    hasher = blake2b("\n".join(FLAGS).encode(), digest_size=32)
    for path in sorted((*SOURCES.glob("*.c"), *SOURCES.glob("*.h"))):
        hasher.update(f"\n{path.name}\n".encode() + path.read_bytes())
    return hasher.hexdigest()


def variant() -> str:
    """Return the name of driver volumes with the libraries of this version (`volumes.shim`)."""
    return variant_of(digest())
