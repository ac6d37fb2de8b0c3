"""A Mesos master process: the steps, in the order, of main() in src/master/main.cpp of 1.11.0.

With --zk, masters elect a leader through ZooKeeper, and a quorum of them keeps the registry. Not supported: modules,
hooks, firewall rules, other allocators and authorizers, and rate limits of agent removal. Without --webui_dir the web
page is this package's.
"""

from __future__ import annotations

import ctypes
import os

from mesos_gpu.libmesos import authorization, program
from mesos_gpu.libmesos.cxx import (
    STRING,
    CallFailed,
    Mesos,
    P,
    duration,
    fail,
    option,
    option_of,
    string,
    string_at,
    virtual_base,
    zeros,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

S = STRING
OPTIONAL: Final = f"RK6OptionI{S}E"  # const Option<string>&
MASTER: Final = "_ZN5mesos8internal6master"  # mesos::internal::master::
#: Constructor MesosAllocator<HierarchicalAllocatorProcess<DRFSorter, DRFSorter>>(), which `Allocator::create` calls.
ALLOCATOR: Final = (
    f"{MASTER}9allocator14MesosAllocatorINS2_28HierarchicalAllocatorProcessINS2_9DRFSorterES5_EEEC1Ev"
)
LOG_ALONE: Final = (  # Log::Log(int quorum, const string& path,
    f"_ZN5mesos3log3LogC1EiRK{S}"
    "RKSt3setIN7process4UPIDESt4lessISC_ESaISC_EE"  #   const set<UPID>&,
    "bRK6OptionIS7_E"  #   bool initialize, const Option<string>& prefix of metrics)
)
LOG_OF_ZOOKEEPER: Final = (  # Log::Log(int quorum, const string& path,
    f"_ZN5mesos3log3LogC1EiRK{S}"
    "S9_RK8DurationS9_"  #   const string& servers, const Duration&, const string& znode,
    "RK6OptionIN9zookeeper14AuthenticationEE"  #   const Option<Authentication>&,
    "bRKSD_IS7_E"  #   bool initialize, const Option<string>& prefix of metrics)
)
CONTENDER: Final = f"_ZN5mesos6master9contender15MasterContender6createE{OPTIONAL}SC_RKS3_I8DurationE"
DETECTOR: Final = f"_ZN5mesos6master8detector14MasterDetector6createE{OPTIONAL}SC_RKS3_I8DurationE"
MASTER_CONSTRUCTOR: Final = (
    MASTER
    + (  # Master::Master(
        "6MasterC1EPNS_9allocator9AllocatorE"  #   Allocator*,
        "PNS1_9RegistrarEPNS0_5FilesE"  #   Registrar*, Files*,
        "PNS_6master9contender15MasterContenderEPNSA_8detector14MasterDetectorE"  #   MasterContender*, MasterDetector*,
        "RK6OptionIPNS_10AuthorizerEE"  #   const Option<Authorizer*>&,
        "RKSH_ISt10shared_ptrIN7process11RateLimiterEEE"  #   const Option<shared_ptr<RateLimiter>>&,
        "RKNS1_5FlagsE"  #   const Flags&)
    )
)
MASTER_SIZE: Final = 0x1A20  # the operator new in front of Master::Master in local::launch
MASTER_INFO: Final = 0xE88  # offset of its MasterInfo: what Master::info() returns in local::launch
READONLY: Final = "mesos-master-readonly"
#: Directory that is served at `/` and below `/app`, as Mesos does with the files of --webui_dir.
PAGE: Final = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "web", "mesos")
#: Flags whose objects main.cpp creates with code that the library lacks; the one value that each may have, "" for none.
NOT_WIRED: Final = {
    "agent_removal_rate_limit": "",
    "allocator": "hierarchical",
    "authorizers": "local",
    "firewall_rules": "",
    "framework_sorter": "drf",
    "hooks": "",
    "ip_discovery_command": "",
    "master_contender": "",
    "master_detector": "",
    "modules": "",
    "modules_dir": "",
    "role_sorter": "drf",
}


def main(path: str, flags: list[str]) -> int:
    """Run until killed, or until another master leads in its place. `flags`: flags of the form --name=value."""
    try:
        lib = Mesos(path)
        master = _start(lib, flags)
    except CallFailed as error:
        return fail(error)
    program.watch_clock("mesos-master", lib)
    lib.join(master)
    os._exit(0)  # without waiting for libprocess' threads


def _start(lib: Mesos, argv: list[str]) -> int:
    """Create the master's objects and start it. Return the address of the Master."""
    values = program.given(argv, NOT_WIRED)
    # master::Flags : virtual logging::Flags : virtual flags::FlagsBase
    flags = lib.new(MASTER + "5FlagsC1Ev")
    command = ["mesos-master", *argv, *page(values)]
    lib.load_flags(virtual_base(flags, 1), "MESOS_", command)
    program.listen(values, 5050)
    lib.start_libprocess("master", "mesos-master-readwrite", READONLY, command)

    zk = program.zookeeper(values.get("zk", ""))
    timeout = duration(lib, values.get("zk_session_timeout", "10secs"))
    allocator = lib.new(ALLOCATOR)
    storage = _storage(lib, values, zk, timeout)
    state = zeros(16)  # protobuf::State {vptr; Storage*}, whose constructor is inline
    P.from_address(state).value = lib.vtable("_ZTVN5mesos5state8protobuf5StateE")
    P.from_address(state + 8).value = storage
    registrar = lib.new(
        f"{MASTER}9RegistrarC1ERKNS1_5FlagsEPNS_5state5StateE{OPTIONAL}", P(flags), P(state), option(READONLY)
    )
    of_zookeeper, session = option(str(zk) if zk else None), zeros(16)
    ctypes.memmove(session + 8, timeout, 8)  # Option<Duration>
    contender = lib.attempt(CONTENDER, of_zookeeper, option(), P(session))
    detector = lib.attempt(DETECTOR, of_zookeeper, option(), P(session))
    authorizer = authorization.authorizer(lib, values.get("acls", ""))
    files = lib.new(
        f"_ZN5mesos8internal5FilesC1E{OPTIONAL}RKS2_IPNS_10AuthorizerEE",
        option(READONLY),
        option_of(authorizer),
    )
    master = lib.new(
        MASTER_CONSTRUCTOR,
        P(allocator), P(registrar), P(files), P(contender), P(detector), option_of(authorizer), option(), P(flags),
        size=MASTER_SIZE,
    )  # fmt: skip
    if not zk:
        _lead(lib, master, detector)
    lib.spawn(master)
    return master


def page(given: Mapping[str, str]) -> list[str]:
    """Return the flag for this package's web page; nothing if `given`, the flags by name, has --webui_dir."""
    return [] if "webui_dir" in given else [f"--webui_dir={PAGE}"]


def _storage(lib: Mesos, values: Mapping[str, str], zk: program.ZooKeeper | None, timeout: int) -> int:
    """Create the Storage* of the registry.

    Raises:
        CallFailed: A flag is missing or invalid.
    """
    kind = values.get("registry", "replicated_log")
    if kind == "in_memory":
        return lib.new("_ZN5mesos5state15InMemoryStorageC1Ev")
    if kind != "replicated_log":
        raise CallFailed(f"--registry={kind}: must be replicated_log or in_memory")
    if not values.get("work_dir"):
        raise CallFailed("--work_dir is required: the registry is stored there")
    os.makedirs(values["work_dir"], exist_ok=True)
    where = string(os.path.join(values["work_dir"], "replicated_log"))
    begin = ctypes.c_bool(values.get("log_auto_initialize", "true") != "false")
    metrics = option("registrar/")
    if zk:
        if not values.get("quorum"):
            raise CallFailed("--quorum is required with --zk: more than half of the number of masters")
        quorum = ctypes.c_int(int(values["quorum"]))
        znode = string(f"{zk.path.rstrip('/')}/log_replicas")
        log = lib.new(
            LOG_OF_ZOOKEEPER, quorum, where, string(zk.servers), P(timeout), znode, _authentication(zk), begin, metrics
        )  # fmt: skip
    else:
        log = lib.new(LOG_ALONE, ctypes.c_int(1), where, _no_pids(), begin, metrics)
    return lib.new("_ZN5mesos5state10LogStorageC1EPNS_3log3LogEm", P(log), ctypes.c_size_t(0))


def _authentication(zk: program.ZooKeeper) -> P:
    """Return an Option<zookeeper::Authentication {string scheme; string credentials}>."""
    if not zk.credentials:
        return option()
    address = zeros(8 + 64)
    string_at(address + 8, "digest")
    string_at(address + 40, zk.credentials)
    return P(address)


def _no_pids() -> P:
    """Return an empty std::set<UPID>: less; header {color; parent; left; right}, which points to itself; size."""
    address = zeros(48)
    header = address + 8
    for link in (16, 24):
        P.from_address(header + link).value = header
    return P(address)


def _lead(lib: Mesos, master: int, detector: int) -> None:
    """Appoint the only master: StandaloneMasterDetector::appoint(Option<MasterInfo>); there is no election."""
    info = zeros(512)
    lib["_ZN5mesos10MasterInfoC1ERKS0_"](P(info + 8), P(master + MASTER_INFO))
    lib["_ZN5mesos6master8detector24StandaloneMasterDetector7appointERK6OptionINS_10MasterInfoEE"](
        P(detector), P(info)
    )
