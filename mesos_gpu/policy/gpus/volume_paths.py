"""Where a task finds the driver volume, and the paths that lead it there.

Sources: Mesos 1.11.0, NvidiaVolume (paths, and their order). Lean: the executor imports it.
"""

from typing import Final

from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.driver import CUDA_LABEL, cuda_of, version_of

VOLUME_PATH: Final = "/usr/local/nvidia"  # where images expect the driver volume
COMPAT_PATH: Final = "/usr/local/cuda/compat"
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def container_environment(
    config: ImageConfig,
    driver_version: str | None = None,
    cuda_version: str | None = None,
    *,
    compat: bool = True,
    first: bool = False,
) -> dict[str, str]:
    """PATH and LD_LIBRARY_PATH for an image with the driver volume: its own, and what is missing.

    Order as in Mesos: the image's own, /usr/local/cuda/compat, lib, lib64. But compat always stands before the
    driver's own, also where the image names those already; and it is left out when the host's driver is as new
    as the image's CUDA: an older libcuda in front of a newer driver fails with CUDA error 803. So it is without
    `compat`, for a command on the host's file system: what lies there came with a toolkit of any age. `first`: the
    driver volume stands before all else and compat is left out, as the volume has the libraries that keep a share.
    """
    own = [path for path in config.env.get("LD_LIBRARY_PATH", "").split(":") if path]
    drivers = [f"{VOLUME_PATH}/lib", f"{VOLUME_PATH}/lib64"]
    if first:
        compat, own = False, [*drivers, *(path for path in own if path not in (*drivers, COMPAT_PATH))]
    own += [path for path in drivers if path not in own]
    host = version_of(cuda_version) or cuda_of(driver_version)
    image = version_of(config.env.get("CUDA_VERSION") or config.labels.get(CUDA_LABEL))
    old_enough = host is not None and image is not None and image[:2] <= host[:2]
    if compat and not old_enough and COMPAT_PATH not in own:
        own.insert(min(own.index(path) for path in drivers), COMPAT_PATH)
    binaries = [path for path in (config.env.get("PATH") or DEFAULT_PATH).split(":") if path]
    if f"{VOLUME_PATH}/bin" not in binaries:
        binaries.append(f"{VOLUME_PATH}/bin")
    return {"PATH": ":".join(binaries), "LD_LIBRARY_PATH": ":".join(own)}
