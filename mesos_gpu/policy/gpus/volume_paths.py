"""Location of the driver volume in a task, and the variables with which libraries find it.

Sources: Mesos 1.11.0, NvidiaVolume (paths, and their order). Lean: the executor imports it.
"""

from collections.abc import Collection, Mapping
from typing import Final

from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.model.nodes.driver import CUDA_LABEL, cuda_of, version_of

VOLUME_PATH: Final = "/usr/local/nvidia"  # where images expect the driver volume
COMPAT_PATH: Final = "/usr/local/cuda/compat"
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


OPTIX_DATA: Final = "share/nvidia/nvoptix.bin"  # path below a driver volume
#: The only path where the driver's libnvoptix looks for it.
OPTIX_PATH: Final = "/usr/share/nvidia/nvoptix.bin"
#: Default directories of an image's loaders, appended after the volume's.
_VENDORS: Final = ("/etc/glvnd/egl_vendor.d", "/usr/share/glvnd/egl_vendor.d")
_BACK_ENDS: Final = (
    "/usr/lib/x86_64-linux-gnu/gbm",
    "/usr/lib/aarch64-linux-gnu/gbm",
    "/usr/lib64/gbm",
    "/usr/lib/gbm",
)


def graphics_environment(data: Collection[str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which EGL, Vulkan and GBM find the driver, except those that the task sets itself.

    Sources: libglvnd, src/EGL/icd_enumeration.md (vendors); the Vulkan loader's LoaderDriverInterface.md and
    LoaderLayerInterface.md (drivers, also by the name before 1.3.207; layers); Mesa, docs/envvars.rst (back-ends).

    Args:
        data: Data files in the volume, as paths below it; without them there is no graphics.
        own: Variables of the task.
    """
    vendors = [path for path in sorted(data) if path.startswith("share/glvnd/egl_vendor.d/")]
    drivers = ":".join(
        f"{VOLUME_PATH}/{path}" for path in sorted(data) if path.startswith("share/vulkan/icd.d/")
    )
    variables: dict[str, str] = {}
    if vendors:
        variables["__EGL_VENDOR_LIBRARY_DIRS"] = ":".join(
            (f"{VOLUME_PATH}/share/glvnd/egl_vendor.d", *_VENDORS)
        )
        variables["GBM_BACKENDS_PATH"] = ":".join((f"{VOLUME_PATH}/lib64/gbm", *_BACK_ENDS))
    if any(path.startswith("share/egl/egl_external_platform.d/") for path in data):
        variables["__EGL_EXTERNAL_PLATFORM_CONFIG_DIRS"] = f"{VOLUME_PATH}/share/egl/egl_external_platform.d"
    if drivers:
        variables |= {"VK_DRIVER_FILES": drivers, "VK_ICD_FILENAMES": drivers}
    if any(path.startswith("share/vulkan/implicit_layer.d/") for path in data):
        variables["VK_ADD_IMPLICIT_LAYER_PATH"] = f"{VOLUME_PATH}/share/vulkan/implicit_layer.d"
    # The task's own choice of drivers, by any of these names, takes precedence.
    if own.keys() & {"VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"}:
        variables.pop("VK_DRIVER_FILES", None)
        variables.pop("VK_ICD_FILENAMES", None)
    if "__EGL_VENDOR_LIBRARY_FILENAMES" in own:
        variables.pop("__EGL_VENDOR_LIBRARY_DIRS", None)
    return {name: value for name, value in variables.items() if name not in own}


def container_environment(
    config: ImageConfig,
    driver_version: str | None = None,
    cuda_version: str | None = None,
    *,
    compat: bool = True,
    first: bool = False,
    data: Collection[str] = (),
) -> dict[str, str]:
    """Return PATH and LD_LIBRARY_PATH for an image with the driver volume, and the variables of `graphics_environment`.

    The order is as in Mesos: the image's own paths, /usr/local/cuda/compat, lib, lib64. But compat always stands before
    the driver's own, even where the image names those already. It is left out if the host's driver is as new as the
    image's CUDA, as an older libcuda in front of a newer driver fails with CUDA error 803.

    Args:
        config: Configuration of the image.
        driver_version: Version of the host's driver; None if not known.
        cuda_version: Newest CUDA that the driver runs; None to derive it from the driver's branch.
        compat: False to leave compat out for a command on the host's file system, whose files came with a toolkit of
            any age.
        first: Whether the driver volume stands before all else, without compat, as the volume has the libraries that
            enforce a share.
        data: Data files in the volume.
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
    paths = {"PATH": ":".join(binaries), "LD_LIBRARY_PATH": ":".join(own)}
    return {**paths, **graphics_environment(data, config.env)}
