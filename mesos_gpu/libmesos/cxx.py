"""Calls of libmesos' C++ functions from Python, by a small part of the Itanium C++ ABI.

Only the standard library is used: the helpers run once for each container, with `python -I -S`. The layouts are those
of GCC 5's libstdc++ (new string ABI) and of stout's headers in Mesos 1.11.0. They hold for exactly one build of the
library, so `Mesos` checks its build id before anything is called. Mangled names come from `nm -D libmesos-1.11.0.so`;
c++filt decodes them. Objects live as long as the process: no buffer is ever freed.
"""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each container's start 8 ms
    from typing import Any, Final

BUILD_ID: Final = bytes.fromhex("c70adfb7e15fd4f444f03fb2be7dbcf2ead8b0b0")
BUILD_ID_AT: Final = 512 + 16  # .note.gnu.build-id is at 512, and its 20 bytes of id 16 bytes further on
P = ctypes.c_void_p
#: GOT offsets of curl_global_init, curl_easy_init and curl_easy_cleanup (readelf -r).
CURL_SLOTS: Final = (0x4CDF038, 0x4CDF350, 0x4CE0230)
#: GOT offsets of HMAC and EVP_sha256, which sign executors' tokens.
HMAC_SLOT, SHA256_SLOT = 0x4CDFC00, 0x4CDFAB0
STRING: Final = "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"  # mangled std::string
_SET_CALLBACKS: Final = (  # setCallbacks(const hashmap<string, function<Future<bool>(Request, Option<Principal>)>>&)
    "_ZN7process4http13authorization12setCallbacksERK7hashmapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    "St8functionIFNS_6FutureIbEENS0_7RequestE6OptionINS0_14authentication9PrincipalEEEESt4hashIS8_ESt8equal_toIS8_EE"
)
GUARD: Final = 4096
REFUSED: Final = "mesos: "  # prefix of the line that says why a program did not start
SOME, NONE = 0, 1  # stout's Option<T> {enum {SOME, NONE} state; T t}: t is at offset 8 if aligned to 8
_keep: list[Any] = []


class CallFailed(Exception):
    """A function of Mesos returned an error; the text is Mesos' own."""


def zeros(size: int) -> int:
    """Return the address of zeroed memory that is aligned as by operator new, and never freed."""
    block = ctypes.create_string_buffer(size + 16)
    _keep.append(block)
    return (ctypes.addressof(block) + 15) & ~15


def pointer_at(address: int) -> int:
    """Return the pointer stored at an address; 0 for null."""
    return P.from_address(address).value or 0


def string_at(address: int, text: str) -> P:
    """Construct a std::string at an address: {char* data; size_t size; 16 bytes: the capacity, or a short string}."""
    data = ctypes.create_string_buffer(text.encode())
    _keep.append(data)
    P.from_address(address).value = ctypes.addressof(data)
    ctypes.c_size_t.from_address(address + 8).value = len(data) - 1
    return P(address)


def string(text: str) -> P:
    """Return a pointer to a new std::string."""
    return string_at(zeros(32), text)


def read_string(address: int) -> str:
    """Return the text of the std::string at an address."""
    size = ctypes.c_size_t.from_address(address + 8).value
    return ctypes.string_at(pointer_at(address), size).decode()


def option(text: str | None = None) -> P:
    """Return a pointer to a new Option<std::string>; for `text` None, to a None() of any type."""
    address = zeros(512)
    if text is None:
        ctypes.c_int.from_address(address).value = NONE
    else:
        string_at(address + 8, text)
    return P(address)


def option_of(pointer: int) -> P:
    """Return a pointer to a new Option<T*>; to None() for a null pointer."""
    if not pointer:
        return option()
    address = zeros(64)
    P.from_address(address + 8).value = pointer
    return P(address)


def duration(lib: Mesos, text: str) -> int:
    """Return the address of a Duration {int64_t nanos} that Mesos parses from a text like "10secs".

    Raises:
        CallFailed: The text is no duration.
    """
    result = zeros(256)
    lib["_ZN8Duration5parseERK" + STRING](P(result), string(text))
    if ctypes.c_int.from_address(result).value != SOME:
        raise CallFailed(read_string(result + 16 + 8))
    return result + 8


def virtual_base(address: int, index: int = 0) -> int:
    """Return the address of an object's index-th virtual base, whose offset is stored in front of the vtable:

    … vbase offset 1, vbase offset 0, offset to top, typeinfo | virtual functions.
    """
    vtable = pointer_at(address)
    return address + ctypes.c_int64.from_address(vtable - 24 - 8 * index).value


class Mesos(ctypes.CDLL):
    """The loaded library, whose build id is checked first.

    Raises:
        CallFailed: The file is another build, or cannot be loaded.
    """

    def __init__(self, path: str) -> None:
        path = os.path.realpath(path)  # the name that /proc/self/maps has
        with open(path, "rb") as file:
            file.seek(BUILD_ID_AT)
            if file.read(20) != BUILD_ID:
                raise CallFailed(f"{path} is not the library of mesos.scheduler 1.11.0")
        try:
            super().__init__(path, mode=os.RTLD_GLOBAL)
        except OSError as error:
            raise CallFailed(f"{path} cannot be loaded: {error}") from None

    def __getitem__(self, symbol: str) -> Any:
        """Return a C++ function, by its mangled name, that returns a pointer or nothing."""
        function = super().__getitem__(symbol)
        function.restype = P
        return function

    def new(self, constructor: str, *args: Any, size: int = 0x10000) -> int:
        """Construct an object in `size` zeroed bytes. Return its address.

        `size` may be larger than the object: a guard area behind it detects a size that is too small.
        """
        address = zeros(size + GUARD)
        self[constructor](P(address), *args)
        if ctypes.string_at(address + size, GUARD).strip(b"\0"):
            raise CallFailed(f"{constructor} needs more than {size} bytes")
        return address

    def attempt(self, function: str, *args: Any) -> int:
        """Call a function that returns Try<T*> through a hidden first pointer. Return the T*.

        Try<T*> {Option<T*> data; Option<Error> error}, Error {std::string message}.
        """
        result = zeros(1024)
        self[function](P(result), *args)
        if ctypes.c_int.from_address(result).value != SOME:
            raise CallFailed(read_string(result + 16 + 8))
        return pointer_at(result + 8)

    def set_authorization(self, authorizer: int) -> None:
        """Have libprocess' own endpoints (/metrics, /logging) ask an Authorizer*:

        process::http::authorization::setCallbacks(mesos::authorization::createAuthorizationCallbacks(Authorizer*)).
        """
        callbacks = zeros(512)
        self["_ZN5mesos13authorization28createAuthorizationCallbacksB5cxx11EPNS_10AuthorizerE"](
            P(callbacks), P(authorizer)
        )
        self[_SET_CALLBACKS](P(callbacks))

    def load_flags(self, flags_base: int, prefix: str, argv: list[str], *, unknowns: bool = False) -> None:
        """Load flags into an object from the environment and `argv`:

        flags::FlagsBase::load(const Option<string>& prefix, int argc, const char* const* argv, bool unknowns,
        bool duplicates) -> Try<Warnings>.
        """
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
        # Option<Warnings {std::vector}> has 8 + 24 bytes; Option<Error> follows
        if ctypes.c_int.from_address(result).value != SOME:
            raise CallFailed(read_string(result + 32 + 8))

    def do_without_curl(self) -> None:
        """Make curl_easy_init return null, "no memory" (curl_easy_init(3)), as the library has no libcurl to call.

        The agent calls it for the size of a file that its fetcher should cache, and then fetches without the cache.
        """
        nothing = ctypes.CFUNCTYPE(P, P)(lambda _: None)
        self.fill(dict.fromkeys(CURL_SLOTS, nothing))

    def fill(self, slots: dict[int, Any]) -> None:
        """Put Python functions into GOT slots of functions whose libraries are missing, by offset."""
        with open("/proc/self/maps") as file:
            mapped = (line for line in file if line.rstrip().endswith(self._name))
            base = int(next(mapped).partition("-")[0], 16)
        for slot, function in slots.items():
            _keep.append(function)
            P.from_address(base + slot).value = ctypes.cast(function, P).value

    def vtable(self, symbol: str) -> int:
        """Return the vtable pointer of a class's objects: behind the offset to top and the typeinfo."""
        return ctypes.addressof(ctypes.c_char.in_dll(self, symbol)) + 16

    def start_libprocess(self, delegate: str, readwrite: str, readonly: str, argv: list[str]) -> None:
        """Start libprocess, logging, and the process behind /version.

        process::initialize(delegate, realm, realm) must come first. `argv` begins with the program's name, and its
        flags configure logging.
        """
        # Mesos ends itself by exit(3), for instance when it loses its leadership: destructors would run beside threads
        # of libprocess that continue, and deadlock. on_exit(3) with _exit(2) ends the process before they run.
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
        """Start a process: process::spawn(ProcessBase*, bool manage) -> UPID.

        ProcessBase is the only virtual base of every Process<T>, whichever other bases T has.
        """
        self["_ZN7process5spawnEPNS_11ProcessBaseEb"](
            P(zeros(512)), P(virtual_base(process)), ctypes.c_bool(False)
        )

    def plan_timers(self) -> None:
        """Make libprocess schedule its check of timers again.

        process::Clock::pause() drops the scheduled checks, and process::Clock::resume() schedules the next one.
        """
        self["_ZN7process5Clock5pauseEv"]()
        self["_ZN7process5Clock6resumeEv"]()

    def join(self, process: int) -> None:
        """Wait until a process ends: process::wait(UPID(*process), Seconds(-1)), without a limit."""
        upid, forever = zeros(512), zeros(16)
        self["_ZN7process4UPIDC1ERKNS_11ProcessBaseE"](P(upid), P(virtual_base(process)))
        ctypes.c_int64.from_address(forever).value = -(10**9)  # Duration {int64_t nanos}
        self["_ZN7process4waitERKNS_4UPIDERK8Duration"](P(upid), P(forever))


def fail(error: CallFailed) -> int:
    """Print Mesos' error text in the form that a program's caller expects. Return the exit code."""
    print(f"{REFUSED}{error}", file=sys.stderr, flush=True)
    return 1
