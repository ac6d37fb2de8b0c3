"""Call libmesos' C++ functions from Python: a sliver of the Itanium C++ ABI.

Only the standard library is used: the helpers run once for each container, with `python -I -S`. The layouts
are those of GCC 5's libstdc++ (new string ABI) and of stout's headers in Mesos 1.11.0. They hold for exactly
one build of the library, so `Mesos` checks its build id before anything is called. Mangled names come from
`nm -D libmesos-1.11.0.so`, and c++filt reads them. Objects live as long as the process: every buffer is kept.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each container's start 8 ms
    from typing import Any, Final

BUILD_ID: Final = bytes.fromhex("c70adfb7e15fd4f444f03fb2be7dbcf2ead8b0b0")
BUILD_ID_AT: Final = 512 + 16  # .note.gnu.build-id lies at 512, its 20 bytes of id 16 further on
P = ctypes.c_void_p
#: Where the library looks curl_global_init, curl_easy_init and curl_easy_cleanup up (readelf -r).
CURL_SLOTS: Final = (0x4CDF038, 0x4CDF350, 0x4CE0230)
#: And HMAC, EVP_sha256, which sign executors' tokens.
HMAC_SLOT, SHA256_SLOT = 0x4CDFC00, 0x4CDFAB0
STRING: Final = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"  # mangled std::string
_SET_CALLBACKS: Final = (  # setCallbacks(const hashmap<string, function<Future<bool>(Request, Option<Principal>)>>&)
    "_ZN7process4http13authorization12setCallbacksERK7hashmapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    "St8functionIFNS_6FutureIbEENS0_7RequestE6OptionINS0_14authentication9PrincipalEEEESt4hashIS8_ESt8equal_toIS8_EE"
)
GUARD: Final = 4096
REFUSED: Final = "mesos: "  # begins the line in which a program says why it does not start
SOME, NONE = 0, 1  # stout's Option<T> {enum {SOME, NONE} state; T t}: t at 8 if it is aligned to 8
_keep: list[Any] = []


class CallFailed(Exception):
    """A function of Mesos returned an error; the text is Mesos' own."""


def zeros(size: int) -> int:
    """Address of zeroed memory, aligned as by operator new, that is never freed."""
    block = ctypes.create_string_buffer(size + 16)
    _keep.append(block)
    return (ctypes.addressof(block) + 15) & ~15


def pointer_at(address: int) -> int:
    """The pointer that is stored at an address; 0 for null."""
    return P.from_address(address).value or 0


def string_at(address: int, text: str) -> P:
    """Construct a std::string {char* data; size_t size; 16 bytes: the capacity, or a short string}."""
    data = ctypes.create_string_buffer(text.encode())
    _keep.append(data)
    P.from_address(address).value = ctypes.addressof(data)
    ctypes.c_size_t.from_address(address + 8).value = len(data) - 1
    return P(address)


def string(text: str) -> P:
    """A new std::string."""
    return string_at(zeros(32), text)


def read_string(address: int) -> str:
    """The text of a std::string."""
    size = ctypes.c_size_t.from_address(address + 8).value
    return ctypes.string_at(pointer_at(address), size).decode()


def option(text: str | None = None) -> P:
    """Option<std::string>; None() of any type when `text` is None."""
    address = zeros(512)
    if text is None:
        ctypes.c_int.from_address(address).value = NONE
    else:
        string_at(address + 8, text)
    return P(address)


def option_of(pointer: int) -> P:
    """Option<T*>; None() for a null pointer."""
    if not pointer:
        return option()
    address = zeros(64)
    P.from_address(address + 8).value = pointer
    return P(address)


def duration(lib: Mesos, text: str) -> int:
    """Address of a Duration {int64_t nanos}, parsed by Mesos itself, as "10secs".

    Raises:
        CallFailed: It is none.
    """
    result = zeros(256)
    lib["_ZN8Duration5parseERK" + STRING](P(result), string(text))
    if ctypes.c_int.from_address(result).value != SOME:
        raise CallFailed(read_string(result + 16 + 8))
    return result + 8


def virtual_base(address: int, index: int = 0) -> int:
    """The object's index-th virtual base. Its offset lies in front of the vtable:
    … vbase offset 1, vbase offset 0, offset to top, typeinfo | virtual functions."""
    vtable = pointer_at(address)
    return address + ctypes.c_int64.from_address(vtable - 24 - 8 * index).value


class Mesos(ctypes.CDLL):
    """The loaded library.

    Raises:
        CallFailed: Another build, or one that cannot be loaded.
    """

    def __init__(self, path: str) -> None:
        """Check the build id, then load."""
        path = os.path.realpath(path)  # as the kernel names it among mapped files
        with open(path, "rb") as file:
            file.seek(BUILD_ID_AT)
            if file.read(20) != BUILD_ID:
                raise CallFailed(f"{path} is not the library of mesos.scheduler 1.11.0")
        try:
            super().__init__(path, mode=os.RTLD_GLOBAL)
        except OSError as error:
            raise CallFailed(f"{path} cannot be loaded: {error}") from None

    def __getitem__(self, symbol: str) -> Any:
        """A function that returns a pointer, or nothing."""
        function = super().__getitem__(symbol)
        function.restype = P
        return function

    def new(self, constructor: str, *args: Any, size: int = 0x10000) -> int:
        """Construct an object in `size` zeroed bytes, with a guard behind it that the constructor must
        leave alone: `size` need only be large enough."""
        address = zeros(size + GUARD)
        self[constructor](P(address), *args)
        if ctypes.string_at(address + size, GUARD).strip(b"\0"):
            raise CallFailed(f"{constructor} needs more than {size} bytes")
        return address

    def attempt(self, function: str, *args: Any) -> int:
        """Call a function that returns Try<T*>, through a hidden first pointer:
        Try<T*> {Option<T*> data; Option<Error> error}, Error {std::string message}."""
        result = zeros(1024)
        self[function](P(result), *args)
        if ctypes.c_int.from_address(result).value != SOME:
            raise CallFailed(read_string(result + 16 + 8))
        return pointer_at(result + 8)

    def set_authorization(self, authorizer: int) -> None:
        """Have libprocess' own endpoints (/metrics, /logging) ask an Authorizer*:
        process::http::authorization::setCallbacks(mesos::authorization::createAuthorizationCallbacks(Authorizer*))."""
        callbacks = zeros(512)
        self["_ZN5mesos13authorization28createAuthorizationCallbacksB5cxx11EPNS_10AuthorizerE"](
            P(callbacks), P(authorizer)
        )
        self[_SET_CALLBACKS](P(callbacks))

    def load_flags(self, flags_base: int, prefix: str, argv: list[str], *, unknowns: bool = False) -> None:
        """flags::FlagsBase::load(const Option<string>& prefix, int argc, const char* const* argv,
        bool unknowns, bool duplicates) -> Try<Warnings>."""
        array = (ctypes.c_char_p * (len(argv) + 1))(*[a.encode() for a in argv], None)
        _keep.append(array)
        result = zeros(1024)
        self[f"_ZN5flags9FlagsBase4loadERK6OptionI{STRING}EiPKPKcbb"](
            P(result),
            P(flags_base),
            option(prefix),
            ctypes.c_int(len(argv)),
            array,
            ctypes.c_bool(unknowns),
            ctypes.c_bool(False),
        )
        # Option<Warnings {std::vector}> takes 8 + 24 bytes, then comes Option<Error>
        if ctypes.c_int.from_address(result).value != SOME:
            raise CallFailed(read_string(result + 32 + 8))

    def do_without_curl(self) -> None:
        """Have curl_easy_init answer null, "no memory" (curl_easy_init(3)), where the library has no libcurl to call:
        the agent asks for the size of a file that its fetcher is to cache, and then fetches it past the cache."""
        nothing = ctypes.CFUNCTYPE(P, P)(lambda _: None)
        self.fill(dict.fromkeys(CURL_SLOTS, nothing))

    def fill(self, slots: dict[int, Any]) -> None:
        """Give the library functions of ours for those of libraries that it is without, by where it looks them up."""
        with open("/proc/self/maps") as file:
            mapped = (line for line in file if line.rstrip().endswith(self._name))
            base = int(next(mapped).partition("-")[0], 16)
        for slot, function in slots.items():
            _keep.append(function)
            P.from_address(base + slot).value = ctypes.cast(function, P).value

    def vtable(self, symbol: str) -> int:
        """Where objects of a class point to: behind the offset to top and the typeinfo."""
        return ctypes.addressof(ctypes.c_char.in_dll(self, symbol)) + 16

    def start_libprocess(self, delegate: str, readwrite: str, readonly: str, argv: list[str]) -> None:
        """process::initialize(delegate, realm, realm), which must come first; logging, as `argv` says, whose first is
        the program's name; the process behind /version."""
        # Mesos ends itself by exit(3), as when it lost its leadership: destructors would run beside threads of
        # libprocess that go on, and wait for each other. on_exit(3) of _exit(2) comes before them.
        libc = ctypes.CDLL(None)
        libc.on_exit(libc._exit, P(0))
        name = f"_ZN7process10initializeERK6OptionI{STRING}ES9_S9_"
        self[name](option(delegate), option(readwrite), option(readonly))
        flags = zeros(0x1000)  # Option<logging::Flags>, and logging::Flags : virtual flags::FlagsBase
        self["_ZN5mesos8internal7logging5FlagsC1Ev"](P(flags + 8))
        self.load_flags(virtual_base(flags + 8), "MESOS_", argv, unknowns=True)
        # logging::initialize(argv0, bool catch signals, const Option<logging::Flags>&)
        self[f"_ZN5mesos8internal7logging10initializeERK{STRING}bRK6OptionINS1_5FlagsEE"](
            string(argv[0]), ctypes.c_bool(True), P(flags)
        )
        self.spawn(self.new("_ZN5mesos8internal14VersionProcessC1Ev"))

    def spawn(self, process: int) -> None:
        """process::spawn(ProcessBase*, bool manage) -> UPID. ProcessBase is the one virtual base of every
        Process<T>, whichever other bases T has."""
        self["_ZN7process5spawnEPNS_11ProcessBaseEb"](
            P(zeros(512)), P(virtual_base(process)), ctypes.c_bool(False)
        )

    def plan_timers(self) -> None:
        """Have libprocess plan anew when it looks at its timers: process::Clock::pause() forgets the looks that are
        planned, and process::Clock::resume() plans the next."""
        self["_ZN7process5Clock5pauseEv"]()
        self["_ZN7process5Clock6resumeEv"]()

    def join(self, process: int) -> None:
        """process::wait(UPID(*process), Seconds(-1)), that is, for ever."""
        upid, forever = zeros(512), zeros(16)
        self["_ZN7process4UPIDC1ERKNS_11ProcessBaseE"](P(upid), P(virtual_base(process)))
        ctypes.c_int64.from_address(forever).value = -(10**9)  # Duration {int64_t nanos}
        self["_ZN7process4waitERKNS_4UPIDERK8Duration"](P(upid), P(forever))


def fail(error: CallFailed) -> int:
    """Print Mesos' text where a program's caller looks for it; the exit code."""
    print(f"{REFUSED}{error}", file=sys.stderr, flush=True)
    return 1
