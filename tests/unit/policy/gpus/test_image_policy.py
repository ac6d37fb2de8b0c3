"""Needs of an image: the driver volume, versions, and its environment."""

import json
from pathlib import Path
from typing import Any

import pytest

from mesos_gpu.model.jobs.image import ImageConfig
from mesos_gpu.policy.gpus.image import DriverNeed, needed_driver, unmet, wants_volume
from mesos_gpu.policy.gpus.volume_paths import container_environment

OFFICIAL = json.loads((Path(__file__).parents[3] / "data/cuda-image/config.json").read_text())


def image(env: dict[str, str] | None = None, **labels: str) -> ImageConfig:
    names = {"volumes": "com.nvidia.volumes.needed", "cuda": "com.nvidia.cuda.version"}
    return ImageConfig({names[k]: v for k, v in labels.items()}, env or {}, (), (), "")


def official(**env: str) -> ImageConfig:
    pairs = (text.partition("=") for text in OFFICIAL["Env"])
    return ImageConfig(OFFICIAL["Labels"], {name: value for name, _, value in pairs} | env, (), (), "")


WANTED: list[tuple[ImageConfig, bool]] = [
    (image(), False),
    (image(volumes=""), False),
    (image(volumes="nvidia_driver"), True),
    (image(volumes="other nvidia_driver"), True),
    (image(volumes="nvidia_driver_old"), False),
    (image({"NVIDIA_VISIBLE_DEVICES": "all"}), True),
    (image({"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2"}), True),
    (image({"NVIDIA_VISIBLE_DEVICES": "none"}), True),
    (image({"NVIDIA_VISIBLE_DEVICES": "void"}), False),
    (image({"NVIDIA_VISIBLE_DEVICES": ""}), False),
    (image({"NVIDIA_VISIBLE_DEVICES": " , "}), False),
    (image({"NVIDIA_VISIBLE_DEVICES": "void"}, volumes="nvidia_driver"), False),
    (official(), True),
]


def test_image_that_names_devices_wants_the_volume() -> None:
    assert [case for case in WANTED if wants_volume(case[0]) is not case[1]] == []


UNMET: list[tuple[ImageConfig, str | None, str | None, str | None]] = [
    (image(), None, None, None),
    (image(cuda=""), None, None, None),
    (
        image(cuda="12.4.1"),
        "535.183.01",
        "12.2",
        "the image needs CUDA 12.4 or newer; this host's driver 535.183.01 runs CUDA 12.2 at most",
    ),
    (image(cuda="12.2.140"), "535.183.01", "12.2", None),
    (image(cuda="9.0.176"), "580.65.06", "13.0", None),
    # the driver does not say: by its branch
    (image(cuda="12.2"), "535.183.01", None, None),
    (
        image(cuda="12.3"),
        "535.0.0-simulated",
        None,
        "the image needs CUDA 12.3 or newer; this host's driver 535.0.0-simulated runs CUDA 12.2 at most",
    ),
    (image(cuda="12.9"), "577.1", None, None),
    (
        image(cuda="8.0"),
        "340.108",
        None,
        "the image needs CUDA 8.0 or newer; the CUDA version that this host's driver 340.108 runs is unknown",
    ),
    (image(cuda="8.0"), None, None, "the image needs CUDA 8.0 or newer; this host has no NVIDIA driver"),
    (
        image(cuda="${CUDA_VERSION}"),
        "580.1",
        "13.0",
        "the image needs 'cuda>=${CUDA_VERSION}', which cannot be read: '${CUDA_VERSION}' is not a version",
    ),
    (
        image(volumes="nvidia_driver data cache"),
        "580.1",
        "13.0",
        "the image needs volume cache, data, which this platform does not have",
    ),
    # NVIDIA's own image: newer CUDA, or a branch with forward compatibility
    (official(), "550.54.15", "12.4", None),
    (official(), "580.65.06", "13.0", None),
    (official(), "535.183.01", "12.2", None),
    (
        official(),
        "545.23.08",
        "12.3",
        "the image needs CUDA 12.4 or newer; this host's driver 545.23.08 runs CUDA 12.3 at most"
        ", nor is another alternative met",
    ),
    (official(NVIDIA_DISABLE_REQUIRE="1"), "460.1", "11.2", None),
    (official(NVIDIA_DISABLE_REQUIRE="True"), "460.1", "11.2", None),
]


def test_image_requirements_are_compared_with_the_driver() -> None:
    for config, driver, cuda, why in UNMET:
        assert unmet(config, driver, cuda) == why, (config, driver, cuda)


def test_image_variable_that_disables_with_zero_disables_nothing() -> None:
    assert unmet(official(NVIDIA_DISABLE_REQUIRE="0"), "460.1", "11.2")


EXPRESSIONS: dict[str, str | None] = {
    "": None,
    "cuda>=12.2": None,
    "cuda>=12.2.0": None,
    "cuda=12.2": None,
    "cuda!=12.1": None,
    "cuda<13": None,
    "cuda<=12.2": None,
    "cuda>12.1": None,
    "driver>=535": None,
    "cuda>=12.2,driver>=535.100": None,
    "cuda>=13 driver>=535": None,
    "brand=Tesla": None,
    "arch>=7.5": None,
    "wat=1 cuda>=12": None,
    "cuda>12.2": "CUDA newer than 12.2; this host's driver 535.183.01 runs CUDA 12.2 at most",
    "cuda<12": "CUDA older than 12; this host's driver 535.183.01 runs CUDA 12.2 at most",
    "cuda!=12.2": "CUDA other than 12.2; this host's driver 535.183.01 runs CUDA 12.2 at most",
    "driver>=535,driver<535.100": "driver older than 535.100; this host has driver 535.183.01",
    "brand=geforce": "a GPU of brand geforce; this host's is tesla",
    "brand!=tesla": "a GPU of another brand than tesla; this host's is tesla",
    "brand>tesla": "'brand>tesla', which cannot be read: brands have no order",
    "arch>=9.0": "compute capability 9.0 or newer; this host's GPUs have 8.0",
    "wat=1": "'wat=1', a condition that this platform does not know",
    "cuda": "'cuda', which cannot be read",
    "cuda=>12": "'cuda=>12', which cannot be read",
    "cuda>=new": "'cuda>=new', which cannot be read: 'new' is not a version",
    "cuda>=13 driver>=600": "CUDA 13 or newer; this host's driver 535.183.01 runs CUDA 12.2 at most"
         ", nor is another alternative met",
}  # fmt: skip


def test_expressions_of_requirements_are_read() -> None:
    for expression, why in EXPRESSIONS.items():
        config = image({"NVIDIA_REQUIRE_CUDA": expression})
        reason = unmet(config, "535.183.01", "12.2", brand="tesla", arch="8.0")
        assert reason == (why and f"the image needs {why}"), expression


def test_image_requirements_must_all_hold_but_those_of_other_boards() -> None:
    fine = {"NVIDIA_REQUIRE_CUDA": "cuda>=12", "NVIDIA_REQUIRE_JETPACK": "csv-mounts=all"}
    assert unmet(image(fine), "535.1", "12.2") is None
    assert unmet(image(fine | {"NVIDIA_REQUIRE_DRIVER": "driver>=550"}), "535.1", "12.2") == (
        "the image needs driver 550 or newer; this host has driver 535.1"
    )


@pytest.mark.parametrize(
    ("config", "driver", "cuda", "need"),
    [
        (image(cuda="12.4.1"), "550.54.15", "12.4", None),
        (image(cuda="12.4.1"), "535.183.01", "12.2", DriverNeed("550", "CUDA 12.4 or newer")),
        (image(cuda="12.2"), None, None, DriverNeed("535", "CUDA 12.2 or newer")),
        (image(cuda="99"), "535.1", "12.2", None),
        (image(cuda="new"), "535.1", "12.2", None),
        (image(volumes="cache"), "535.1", "12.2", None),
        # NVIDIA's own: it takes 470, 525 and 535, too, but no branch between them and 550
        (official(), "545.23.08", "12.3", DriverNeed("550", "CUDA 12.4 or newer")),
        (official(), None, None, DriverNeed("470", "CUDA 12.4 or newer")),
        (
            image({"NVIDIA_REQUIRE_DRIVER": "driver>=535.104"}),
            "535.54",
            "12.2",
            DriverNeed("535.104", "driver 535.104 or newer"),
        ),
        (
            image({"NVIDIA_REQUIRE_DRIVER": "driver<535"}),
            "535.54",
            "12.2",
            None,
        ),
        # its CUDA is not what the branch has: the host's own version is not asked for again
        (image(cuda="12.4"), "550.54", "12.2", DriverNeed("555", "CUDA 12.4 or newer")),
    ],
)
def test_image_requirements_give_the_oldest_driver_that_would_do(
    config: ImageConfig, driver: str | None, cuda: str | None, need: DriverNeed | None
) -> None:
    assert needed_driver(config, driver, cuda) == need


def test_unknown_capability_is_refused() -> None:
    reason = unmet(image({"NVIDIA_REQUIRE_ARCH": "arch>=8.0"}), "535.1", "12.2")
    assert reason == "the image needs compute capability 8.0 or newer; that of this host's GPUs is not known"


def test_environment_of_a_bare_image() -> None:
    assert container_environment(image()) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin",
        "LD_LIBRARY_PATH": "/usr/local/cuda/compat:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    }


def test_environment_keeps_what_the_image_has() -> None:
    environment = container_environment(image({"PATH": "/opt/bin", "LD_LIBRARY_PATH": "/opt/lib"}))
    assert environment["PATH"] == "/opt/bin:/usr/local/nvidia/bin"
    assert environment["LD_LIBRARY_PATH"].split(":")[:2] == ["/opt/lib", "/usr/local/cuda/compat"]


def test_compatible_libraries_come_first_and_only_for_an_older_driver() -> None:
    newer = container_environment(official(), "550.54.15", "12.4")
    assert newer["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    assert newer["PATH"] == official().env["PATH"]
    older = container_environment(official(), "535.183.01", None)
    assert older["LD_LIBRARY_PATH"] == (
        "/usr/local/cuda/compat:/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
    )


NV, COMPAT = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64", "/usr/local/cuda/compat"


@pytest.mark.parametrize(
    ("own", "cuda", "host", "options", "wanted"),
    [
        ("", None, None, {}, f"{COMPAT}:{NV}"),
        ("", None, None, {"compat": False}, NV),
        ("", None, None, {"first": True}, NV),
        ("/a:/b", None, None, {}, f"/a:/b:{COMPAT}:{NV}"),
        ("/a::/b:", None, None, {"compat": False}, f"/a:/b:{NV}"),
        ("/a:/b", None, None, {"first": True}, f"{NV}:/a:/b"),
        (f"/a:{COMPAT}:/b", None, None, {}, f"/a:{COMPAT}:/b:{NV}"),
        (f"/a:{COMPAT}:/b", None, None, {"first": True}, f"{NV}:/a:/b"),
        (f"/a:{NV}:/b", None, None, {}, f"/a:{COMPAT}:{NV}:/b"),
        (f"/a:{NV}:/b", None, None, {"first": True}, f"{NV}:/a:/b"),
        (
            "/usr/local/nvidia/lib64",
            None,
            None,
            {},
            f"{COMPAT}:/usr/local/nvidia/lib64:/usr/local/nvidia/lib",
        ),
        ("", "12.2", "12.2", {}, NV),
        ("", "12.2.140", "12.2", {}, NV),
        ("", "12.2.140", "12.2.5", {}, NV),
        ("", "12.1.1", "12.2", {}, NV),
        ("", "12.3", "12.2", {}, f"{COMPAT}:{NV}"),
        ("", "13.0", "12.9", {}, f"{COMPAT}:{NV}"),
        ("", "12.2", None, {}, f"{COMPAT}:{NV}"),
        ("", None, "12.2", {}, f"{COMPAT}:{NV}"),
    ],
)
def test_environment_has_the_libraries_in_order(
    own: str, cuda: str | None, host: str | None, options: dict[str, Any], wanted: str
) -> None:
    config = image({"LD_LIBRARY_PATH": own} if own else {}, cuda=cuda or "")
    assert container_environment(config, None, host, **options)["LD_LIBRARY_PATH"] == wanted


def test_environment_takes_the_cuda_of_the_image_from_its_variable_first() -> None:
    assert container_environment(image({"CUDA_VERSION": "12.4"}, cuda="12.2"), None, "12.2")[
        "LD_LIBRARY_PATH"
    ] == (f"{COMPAT}:{NV}")
    assert container_environment(image(cuda="12.2"), "535.54")["LD_LIBRARY_PATH"] == NV


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/usr/local/nvidia/bin:/b", "/usr/local/nvidia/bin:/b"),
        ("/a::/b", "/a:/b:/usr/local/nvidia/bin"),
        ("", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin"),
    ],
)
def test_environment_has_the_programs_of_the_driver_once(path: str, wanted: str) -> None:
    assert container_environment(image({"PATH": path}))["PATH"] == wanted


DATA = (
    "share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "share/glvnd/egl_vendor.d/10_nvidia.json",
    "share/vulkan/icd.d/nvidia_icd.i686.json",
    "share/vulkan/icd.d/nvidia_icd.x86_64.json",
    "share/vulkan/implicit_layer.d/nvidia_layers.json",
)
DRIVERS = ":".join(f"/usr/local/nvidia/{path}" for path in DATA if "icd.d" in path)


def test_graphics_are_found_by_variables_where_the_volume_has_their_data() -> None:
    variables = container_environment(image(), data=DATA)
    vendors = variables["__EGL_VENDOR_LIBRARY_DIRS"].split(":")
    assert vendors[0] == "/usr/local/nvidia/share/glvnd/egl_vendor.d"
    assert "/usr/share/glvnd/egl_vendor.d" in vendors, "the image's own vendors stay"
    assert variables["VK_DRIVER_FILES"] == variables["VK_ICD_FILENAMES"] == DRIVERS
    assert variables["GBM_BACKENDS_PATH"].startswith("/usr/local/nvidia/lib64/gbm:")
    assert container_environment(image()).keys() == {"PATH", "LD_LIBRARY_PATH"}
    assert container_environment(image(), data=["share/nvidia/nvoptix.bin"]).keys() == {
        "PATH",
        "LD_LIBRARY_PATH",
    }


@pytest.mark.parametrize(
    ("own", "absent"),
    [
        ({"VK_ICD_FILENAMES": "/mine.json"}, {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}),
        ({"VK_DRIVER_FILES": ""}, {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}),
        ({"__EGL_VENDOR_LIBRARY_FILENAMES": "/mine.json"}, {"__EGL_VENDOR_LIBRARY_DIRS"}),
        ({"GBM_BACKENDS_PATH": "/mine"}, {"GBM_BACKENDS_PATH"}),
    ],
)
def test_variables_of_graphics_that_an_image_sets_are_left_to_it(
    own: dict[str, str], absent: set[str]
) -> None:
    every, left = container_environment(image(), data=DATA), container_environment(image(own), data=DATA)
    assert every.keys() - left.keys() == absent
