"""By what a driver volume is known. Lean: the executor imports it."""

from typing import Final

#: Stem of a library, what ours is called, and what the driver's is called beside it.
REPLACED: Final = (
    ("libcuda", "libcuda.so.1", "libmgpu-real-cuda.so"),
    ("libnvidia-ml", "libnvidia-ml.so.1", "libmgpu-real-ml.so"),
)


def key_of(version: str, variant: str = "") -> str:
    """What a store knows the volume of a driver version by: "535.261.03", "535.261.03+shim-0123456789ab"."""
    return f"{version}+{variant}" if variant else version


def variant_of(digest: str) -> str:
    """The variant of volumes that have the libraries of that source."""
    return f"shim-{digest[:12]}"
