"""Asks libcuda and NVML in every way that there is. Names on stdin, as JSON; what is seen on stdout. No test."""

import ctypes
import json
import sys
from ctypes import byref, c_int, c_uint64, c_void_p

VERSIONS = (3020, 4000, 10000, 11020, 11040, 12000, 12050)
FLAGS = (0, 1, 2)  # default; the old default stream; the thread's own


def address(library: ctypes.CDLL, name: str) -> int | None:
    try:
        return ctypes.cast(library[name], c_void_p).value
    except AttributeError:
        return None


names = json.load(sys.stdin)
cuda, real = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libmgpu-real-cuda.so")
nvml, real_nvml = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.CDLL("libmgpu-real-ml.so")
ours = {name: address(cuda, name) for name in names["wrapped"]}
theirs = {address(real, name): name for name in names["cuda"]}
result = cuda.cuInit(0)


def asked(library: ctypes.CDLL, name: str, version: int, flags: int) -> int | None:
    to, status = c_void_p(), c_int()
    failed = library.cuGetProcAddress_v2(name.encode(), byref(to), version, c_uint64(flags), byref(status))
    return None if failed else to.value


def bases() -> list[str]:
    """Names as cuGetProcAddress takes them: without version and kind of stream."""
    endings = ("_ptsz", "_ptds", "_v2", "_v3", "_v4")
    cut = set()
    for name in names["cuda"]:
        while name.endswith(endings):
            name = name[: name.rindex("_")]
        cut.add(name)
    return sorted(cut)


answers, wrong, changed = 0, [], []
for name in bases():
    for version in VERSIONS:
        for flags in FLAGS:
            plain, seen = asked(real, name, version, flags), asked(cuda, name, version, flags)
            export = theirs.get(plain)
            if export in ours:
                answers += 1
                if seen != ours[export]:
                    wrong.append([name, version, flags, export])
            elif seen != plain:
                changed.append([name, version, flags])

print(
    json.dumps(
        {
            "cuInit": result,
            "exports": len(names["cuda"]),
            "not coming through": [
                n for n in names["cuda"] if n not in ours and address(cuda, n) != address(real, n)
            ],
            "answers": answers,
            "wrong answers": wrong,
            "others' answers that changed": changed,
            "nvmlInit": nvml.nvmlInit_v2(),
            "nvml not coming through": [
                n
                for n in names["nvml"]
                if not n.startswith("nvmlDeviceGetMemoryInfo") and address(nvml, n) != address(real_nvml, n)
            ],
        }
    )
)
