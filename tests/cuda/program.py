"""A program that uses CUDA: python program.py WAY, then expressions on stdin, one a line; answers on stdout.

WAY says how it finds the driver's functions: `dlsym`; `gpa`, as the CUDA runtime does, by cuGetProcAddress_v2 alone;
`gpa-gpa`, by a cuGetProcAddress that it asked cuGetProcAddress_v2 for; `ptsz`, with default streams of its threads'
own. Only the standard library, and ctypes: it runs where nothing is installed. Sizes are MiB; results are CUresult.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

MIB = 1 << 20
way = sys.argv[1]
library = ctypes.CDLL("libcuda.so.1")


def function(name: str, version: int = 12000) -> Any:
    """A function of the driver."""
    if way == "dlsym":
        return next(library[each] for each in (f"{name}_v2", name) if hasattr(library, each))
    address, status = c_void_p(), c_int()
    ask: Any = library.cuGetProcAddress_v2
    if way == "gpa-gpa":
        ask(b"cuGetProcAddress", byref(address), 12000, c_uint64(0), byref(status))
        ask = ctypes.CFUNCTYPE(c_int, _P, _P, c_int, c_uint64, _P)(address.value or 0)
    flags = 2 if way == "ptsz" else 0
    result = ask(name.encode(), byref(address), version, c_uint64(flags), byref(status))
    if result:
        raise LookupError(f"{name}: {result}")
    return ctypes.CFUNCTYPE(c_int, *_ARGUMENTS[name])(address.value or 0)


_P: Any = c_void_p
_ARGUMENTS: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuMemAlloc": [_P, c_size_t],
    "cuMemFree": [c_uint64],
    "cuMemAllocPitch": [_P, _P, c_size_t, c_size_t, c_uint],
    "cuMemAllocManaged": [_P, c_size_t, c_uint],
    "cuMemAllocAsync": [_P, c_size_t, _P],
    "cuMemFreeAsync": [c_uint64, _P],
    "cuMemAllocFromPoolAsync": [_P, c_size_t, _P, _P],
    "cuMemCreate": [_P, c_size_t, _P, c_uint64],
    "cuMemRelease": [c_uint64],
    "cuMemMap": [c_uint64, c_size_t, c_size_t, c_uint64, c_uint64],
    "cuMemUnmap": [c_uint64, c_size_t],
    "cuMemRetainAllocationHandle": [_P, _P],
    "cuMemImportFromShareableHandle": [_P, _P, c_int],
    "cuMemPoolCreate": [_P, _P],
    "cuMemPoolDestroy": [_P],
    "cuMemPoolTrimTo": [_P, c_size_t],
    "cuMemPoolSetAttribute": [_P, c_int, _P],
    "cuDeviceGetMemPool": [_P, c_int],
    "cuDeviceGetDefaultMemPool": [_P, c_int],
    "cuMipmappedArrayCreate": [_P, _P, c_uint],
    "cuGraphAddChildGraphNode": [_P, _P, _P, c_size_t, _P],
    "cuGraphInstantiateWithParams": [_P, _P, _P],
    "cuMemGetInfo": [_P, _P],
    "cuDeviceTotalMem": [_P, c_int],
    "cuArrayCreate": [_P, _P],
    "cuArray3DCreate": [_P, _P],
    "cuArrayDestroy": [c_uint64],
    "cuDevicePrimaryCtxRetain": [_P, c_int],
    "cuDevicePrimaryCtxReset": [c_int],
    "cuCtxCreate": [_P, c_uint, c_int],
    "cuCtxDestroy": [_P],
    "cuCtxSetCurrent": [_P],
    "cuCtxSynchronize": [],
    "cuIpcOpenMemHandle": [_P, _P, c_uint],
    "cuGraphCreate": [_P, c_uint],
    "cuGraphAddMemAllocNode": [_P, _P, _P, c_size_t, _P],
    "cuGraphAddNode": [_P, _P, _P, c_size_t, _P],
    "cuGraphInstantiateWithFlags": [_P, _P, c_uint64],
    "cuGraphLaunch": [_P, _P],
    "cuGraphExecDestroy": [_P],
    "cuDeviceGraphMemTrim": [c_int],
    "cuStreamBeginCapture": [_P, c_int],
    "cuStreamEndCapture": [_P, _P],
    "cuLaunchKernel": [_P, *[c_uint] * 7, _P, _P, _P],
    "cuLaunchCooperativeKernel": [_P, *[c_uint] * 7, _P, _P],
    "cuLaunchKernelEx": [_P, _P, _P, _P],
    "cuLaunchGrid": [_P, c_int, c_int],
    "cuDeviceGetAttribute": [_P, c_int, c_int],
    "cuModuleLoadData": [_P, _P],
    "cuModuleGetFunction": [_P, _P, _P],
}
_functions: dict[str, Any] = {}


def call(name: str, *args: Any) -> int:
    """Call a function of the driver with typed arguments."""
    if name not in _functions:
        made = function(name)
        made.argtypes = _ARGUMENTS[name]
        _functions[name] = made
    result: int = _functions[name](*args)
    return result


held: list[int] = []


def new(name: str, *args: Any) -> int:
    """A result; what was made by a first pointer argument is kept in `held`."""
    made = c_uint64()
    result = call(name, byref(made), *args)
    if not result:
        held.append(made.value)
    return result


def init() -> int:
    result = call("cuInit", 0)
    if not result:
        use(0)
    return result


def use(device: int) -> int:
    """Make the primary context of a device current."""
    context = c_void_p()
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    return call("cuCtxSetCurrent", context)


def alloc(mib: float) -> int:
    return new("cuMemAlloc", int(mib * MIB))


def allocs(mib: float, times: int) -> int:
    """How many of so many allocations succeed."""
    return sum(alloc(mib) == 0 for _ in range(times))


def free(index: int = -1) -> int:
    return call("cuMemFree", held.pop(index))


def managed(mib: int) -> int:
    return new("cuMemAllocManaged", mib * MIB, 1)


def pitch(width: int, height: int) -> int:
    pitch_out = c_size_t()
    made = c_uint64()
    return call("cuMemAllocPitch", byref(made), byref(pitch_out), width, height, 4)


def info() -> tuple[int, int, int]:
    """What is free and in all, MiB."""
    left, total = c_size_t(), c_size_t()
    result = call("cuMemGetInfo", byref(left), byref(total))
    return (result, left.value // MIB, total.value // MIB)


def total(device: int = 0) -> int:
    size = c_size_t()
    call("cuDeviceTotalMem", byref(size), device)
    return size.value // MIB


class Array3D(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("depth", c_size_t), ("format", c_int),
                ("channels", c_uint), ("flags", c_uint)]  # fmt: skip


class Array(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


def array(mib: int) -> int:
    """An array of floats."""
    return new("cuArrayCreate", byref(Array(1024, mib * 256, 0x20, 1)))


def array3d(mib: int, flags: int = 0) -> int:
    return new("cuArray3DCreate", byref(Array3D(1024, 256, mib, 0x20, 1, flags)))


def mipmaps(width: int, height: int, depth: int, levels: int, flags: int = 0) -> int:
    return new("cuMipmappedArrayCreate", byref(Array3D(width, height, depth, 0x20, 1, flags)), levels)


def pool_async(mib: int) -> int:
    return new("cuMemAllocAsync", mib * MIB, None)


def free_async(index: int = -1) -> int:
    return call("cuMemFreeAsync", held.pop(index), None)


def keep(mib: int) -> int:
    """Have the default pool keep so much after it is freed."""
    pool = c_void_p()
    call("cuDeviceGetMemPool", byref(pool), 0)
    return call("cuMemPoolSetAttribute", pool, 4, byref(c_uint64(mib * MIB)))


def trim() -> int:
    pool = c_void_p()
    call("cuDeviceGetMemPool", byref(pool), 0)
    return call("cuMemPoolTrimTo", pool, 0)


def make_pool(location: int = 1, device: int = 0, kind: int = 1) -> int:
    """A pool of memory of a card (1) or of the host (2); of a kind that stays there (1), or moves (2)."""
    properties = (c_int * 22)(kind, 0, location, device)
    return new("cuMemPoolCreate", properties)


def default_pool(device: int) -> int:
    """The pool that a device has of its own."""
    pool = c_void_p()
    call("cuDeviceGetDefaultMemPool", byref(pool), device)
    return pool.value or 0


def from_pool(pool: int, mib: int) -> int:
    return new("cuMemAllocFromPoolAsync", mib * MIB, pool, None)


def create(mib: int, location: int = 1, device: int = 0) -> int:
    """Physical memory."""
    properties = (c_int * 8)(1, 0, location, device)
    return new("cuMemCreate", mib * MIB, properties, 0)


def map_(at: int, mib: int, handle: int, offset: int = 0) -> int:
    return call("cuMemMap", at * MIB, mib * MIB, offset * MIB, handle, 0)


def unmap(at: int, mib: int) -> int:
    return call("cuMemUnmap", at * MIB, mib * MIB)


def free_all() -> int:
    """Release all handles."""
    while held:
        release(held.pop())
    return 0


def release(handle: int) -> int:
    return call("cuMemRelease", handle)


def retain(at: int) -> int:
    return new("cuMemRetainAllocationHandle", c_void_p(at * MIB))


def import_(mib: int) -> int:
    return new("cuMemImportFromShareableHandle", c_void_p(mib * MIB), 1)


def ipc() -> int:
    return new("cuIpcOpenMemHandle", c_void_p(0), 0)


def node(mib: int, device: int = 0) -> Any:
    """Parameters of a node that allocates."""
    parameters = (c_uint64 * 32)()
    ctypes.memmove(parameters, (c_int * 4)(1, 0, 1, device), 16)
    parameters[13] = mib * MIB
    return parameters


def graph(*sizes: int, general: bool = False) -> int:
    """A graph that allocates, and its executable; the first result that is not 0."""
    made, node_out, executable = c_void_p(), c_void_p(), c_void_p()
    call("cuGraphCreate", byref(made), 0)
    for mib in sizes:
        parameters = node(mib)
        name = "cuGraphAddMemAllocNode"
        if general:
            wide = (c_uint64 * 34)()
            ctypes.memmove(wide, (c_int * 4)(10, 0, 0, 0), 16)
            ctypes.memmove(ctypes.addressof(wide) + 16, parameters, 120)
            name, parameters = "cuGraphAddNode", wide
        result = call(name, byref(node_out), made, None, 0, parameters)
        if result:
            return result
    result = call("cuGraphInstantiateWithFlags", byref(executable), made, 0)
    held.append(executable.value or 0)
    return result


def graph_of(*nodes: tuple[int, int], depth: int = 0) -> int:
    """A graph that allocates (MiB, device), which many others are round."""
    made, node_out = c_void_p(), c_void_p()
    call("cuGraphCreate", byref(made), 0)
    for mib, device in nodes:
        call("cuGraphAddMemAllocNode", byref(node_out), made, None, 0, node(mib, device))
    for _ in range(depth):
        outer = c_void_p()
        call("cuGraphCreate", byref(outer), 0)
        call("cuGraphAddChildGraphNode", byref(node_out), outer, None, 0, made)
        made = outer
    return made.value or 0


def instantiate(graph: int, upload: bool = False) -> int:
    """Make a graph executable, in `held`; with `upload` it takes its memory at once."""
    parameters = (c_uint64 * 4)(2 if upload else 0)
    return new("cuGraphInstantiateWithParams", graph, parameters)


def capture(mib: int, kernel_us: int = 0) -> int:
    """Capture an allocation, and a kernel, into a graph; its executable is in `held`."""
    made, executable = c_void_p(), c_void_p()
    call("cuStreamBeginCapture", None, 0)
    result = call("cuMemAllocAsync", byref(c_uint64()), mib * MIB, None) if mib else 0
    if kernel_us:
        launch(kernel_us)
    call("cuStreamEndCapture", None, byref(made))
    call("cuGraphInstantiateWithFlags", byref(executable), made, 0)
    held.append(executable.value or 0)
    return result


def graph_launch(index: int = -1) -> int:
    return call("cuGraphLaunch", held[index], None)


def launch(us: int = 0) -> int:
    return call("cuLaunchKernel", None, us, 1, 1, 1, 1, 1, 0, None, None, None)


def launch_ex(us: int = 0) -> int:
    config = (c_uint64 * 8)()
    ctypes.memmove(config, (c_uint * 7)(us, 1, 1, 1, 1, 1, 0), 28)
    return call("cuLaunchKernelEx", config, None, None, None)


def cooperative(us: int = 0) -> int:
    return call("cuLaunchCooperativeKernel", None, us, 1, 1, 1, 1, 1, 0, None, None)


def grid(us: int = 0) -> int:
    return call("cuLaunchGrid", None, us, 1)


def now() -> float:
    """Return seconds of CLOCK_MONOTONIC."""
    import time

    return time.monotonic()


def sync() -> int:
    return call("cuCtxSynchronize")


def reset() -> int:
    return call("cuDevicePrimaryCtxReset", 0)


def context() -> int:
    """A context of one's own, current."""
    return new("cuCtxCreate", 0, 0)


def destroy(index: int = -1) -> int:
    return call("cuCtxDestroy", held.pop(index))


def fork(mib: int) -> int:
    """What a child that was forked gets for an allocation."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, str(alloc(mib)).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reader, 16))


def fork_and_stay() -> int:
    """The pid of a child that does nothing, for long."""
    import time

    pid = os.fork()
    if pid == 0:
        os.closerange(0, 3)
        time.sleep(60)
        os._exit(0)
    return pid


def close_descriptors() -> int:
    """Do as daemons do that know of none but three."""
    os.closerange(3, 4096)
    return 0


def reopen() -> None:
    """Close the library and open it again, as programs do that only look whether there is one."""
    import _ctypes

    global library
    _ctypes.dlclose(library._handle)
    library = ctypes.CDLL("libcuda.so.1")
    _functions.clear()


def in_threads(threads: int, times: int, mib: int) -> int:
    """Create and release physical memory in several threads at once; how often it was refused."""
    from concurrent.futures import ThreadPoolExecutor

    def churn(_: int) -> int:
        refused = 0
        for _ in range(times):
            handle = c_uint64()
            if call("cuMemCreate", byref(handle), mib * MIB, (c_int * 8)(1, 0, 1, 0), 0):
                refused += 1
            else:
                call("cuMemRelease", handle.value)
        return refused

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(churn, range(threads)))


# --- kernels of our own, as text that the driver compiles


#: Versions of the language and architectures, older first: a driver takes those that it still knows.
_TARGETS = (("6.0", "sm_50"), ("7.0", "sm_80"), ("7.8", "sm_90"), ("8.7", "sm_100"))
#: `burn` computes for so many rounds; `fault` writes where there is no memory.
_KERNELS = """.version {}
.target {}
.address_size 64
.visible .entry burn(.param .u64 burn_to, .param .u32 burn_rounds)
{{
    .reg .pred %p<3>;
    .reg .f32 %f<3>;
    .reg .b32 %r<3>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [burn_to];
    ld.param.u32 %r1, [burn_rounds];
    mov.f32 %f1, 0f3F800001;
    mov.f32 %f2, 0f33D6BF95;
    mov.u32 %r2, 0;
again:
    fma.rn.f32 %f1, %f1, %f1, %f2;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra again;
    setp.eq.f32 %p2, %f1, 0f00000000;
    @%p2 st.global.f32 [%d1], %f1;
    ret;
}}
.visible .entry fault(.param .u64 fault_to, .param .u32 fault_rounds)
{{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    mov.u64 %d1, 16;
    mov.u32 %r1, 1;
    st.global.u32 [%d1], %r1;
    ret;
}}
"""
THREADS, BLOCKS_OF_SM = 256, 8
MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_kernels: dict[str, c_void_p] = {}


def load() -> int:
    """Have the kernels compiled."""
    result, module = -1, c_void_p()
    for target in _TARGETS:
        result = call("cuModuleLoadData", byref(module), _KERNELS.format(*target).encode() + b"\0")
        if not result:
            break
    for name in ("burn", "fault") if not result else ():
        _kernels[name] = c_void_p()
        result = result or call("cuModuleGetFunction", byref(_kernels[name]), module, name.encode())
    return result


def sms() -> int:
    """How many multiprocessors this process is told of."""
    count = c_int()
    call("cuDeviceGetAttribute", byref(count), MULTIPROCESSORS, 0)
    return count.value


def kernel(name: str, rounds: int, blocks: int) -> int:
    to, many = c_uint64(0), c_uint(rounds)
    arguments = (c_void_p * 2)(ctypes.addressof(to), ctypes.addressof(many))
    return call("cuLaunchKernel", _kernels[name], blocks, 1, 1, THREADS, 1, 1, 0, None, arguments, None)


def burn(rounds: int) -> int:
    """Have all multiprocessors compute."""
    return kernel("burn", rounds, sms() * BLOCKS_OF_SM)


def fault() -> int:
    """Write where there is no memory; what the next wait answers."""
    return kernel("fault", 1, 1) or sync()


def seconds(action: Callable[[], object]) -> float:
    """How long it takes until the card is done with it."""
    import time

    began = time.monotonic()
    action()
    sync()
    return time.monotonic() - began


def gauge(ms: float, warm_s: float) -> int:
    """For how many rounds `burn` has to compute to take so long, alone on a card whose clocks have risen."""
    rounds = 64
    while step(rounds, 1) < ms / 1e3 and rounds < 1 << 28:
        rounds *= 2
    rate(rounds, warm_s)
    took_s = min(step(rounds, 8) / 8 for _ in range(5))
    return max(1, int(rounds * ms / 1e3 / took_s))


def step(rounds: int, kernels: int) -> float:
    """Seconds of so many kernels, one after the other, as in a step of a training."""
    return seconds(lambda: [burn(rounds) for _ in range(kernels)])


def rate(rounds: int, seconds_long: float) -> float:
    """Kernels in a second, over so long."""
    import time

    began = time.monotonic()
    count = repeat(lambda: burn(rounds), seconds_long)
    return count / (time.monotonic() - began)


def rates(rounds: int, seconds_long: float, each_s: float) -> list[tuple[float, float]]:
    """Again and again: the end of a while on CLOCK_MONOTONIC, and kernels in a second in it."""
    import time

    until, seen = time.monotonic() + seconds_long, []
    while time.monotonic() < until:
        here = rate(rounds, each_s)
        seen.append((time.monotonic(), here))
    return seen


def repeat(action: Callable[[], object], seconds: float) -> int:
    """Do something again and again for so long; how often."""
    import time

    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        action()
        count += 1
        if count % 16 == 0:
            sync()
    sync()
    return count


print(init(), flush=True)
for line in sys.stdin:
    print(repr(eval(line)), flush=True)
