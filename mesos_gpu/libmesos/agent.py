"""A Mesos agent process: the steps, in the order, of main() in src/slave/main.cpp of 1.11.0.

Not supported: modules, hooks, firewall rules, CSI, domain sockets, systemd, and the pending-future tracker (so never
query an agent's /containerizer/debug: it would call a null pointer).
"""

import ctypes
import os
from typing import Final

from mesos_gpu.libmesos import authorization, program
from mesos_gpu.libmesos.cxx import (
    STRING,
    CallFailed,
    Mesos,
    P,
    fail,
    option,
    option_of,
    read_string,
    string,
    virtual_base,
    zeros,
)

S = STRING
OPTIONAL: Final = f"RK6OptionI{S}E"  # const Option<string>&
SLAVE: Final = "_ZN5mesos8internal5slave"  # mesos::internal::slave::
CONTAINERIZER: Final = SLAVE + (  # Containerizer::create(
    "13Containerizer6createERKNS1_5FlagsEb"  #   const Flags&, bool local,
    "PNS1_7FetcherEPNS1_16GarbageCollectorE"  #   Fetcher*, GarbageCollector*,
    "PNS_14SecretResolverEPNS1_16VolumeGidManagerE"  #   SecretResolver*, VolumeGidManager*,
    "PNS0_20PendingFutureTrackerEPNS1_9CSIServerE"  #   PendingFutureTracker*, CSIServer*)
)
SLAVE_CONSTRUCTOR: Final = SLAVE + (  # Slave::Slave(
    f"5SlaveC1ERK{S}RKNS1_5FlagsE"  #   const string& id, const Flags&,
    "PNS_6master8detector14MasterDetectorE"  #   MasterDetector*,
    "PNS1_13ContainerizerEPNS0_5FilesE"  #   Containerizer*, Files*,
    "PNS1_16GarbageCollectorE"  #   GarbageCollector*,
    "PNS1_23TaskStatusUpdateManagerE"  #   TaskStatusUpdateManager*,
    "PNS_5slave17ResourceEstimatorEPNSQ_13QoSControllerE"  #   ResourceEstimator*, QoSController*,
    "PNS_15SecretGeneratorEPNS1_16VolumeGidManagerE"  #   SecretGenerator*, VolumeGidManager*,
    "PNS0_20PendingFutureTrackerE"  #   PendingFutureTracker*,
    "ON7process5OwnedINS1_9CSIServerEEE"  #   Owned<CSIServer>&&,
    "RK6OptionINS11_7network8internal6SocketINS17_4unix7AddressEEEE"  #   const Option<unix::Socket>&,
    "RKS16_IPNS_10AuthorizerEE"  #   const Option<Authorizer*>&)
)
#: Flags whose objects main.cpp creates with code that the library lacks; the one value that each may have, "" for none.
NOT_WIRED: Final = {
    "authorizers": "local",
    "csi_plugin_config_dir": "",
    "domain_socket_location": "",
    "firewall_rules": "",
    "hooks": "",
    "ip6_discovery_command": "",
    "ip_discovery_command": "",
    "master_detector": "",
    "modules": "",
    "modules_dir": "",
    "qos_controller": "",
    "resource_estimator": "",
    "resource_provider_config_dir": "",
    "secret_resolver": "",
}
PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)
SLAVE_SIZE: Final = 0x24A0  # the operator new in front of Slave::Slave in local::launch


def main(path: str, flags: list[str]) -> int:
    """Run until SIGUSR1, or until the master refuses the agent. `flags`: flags of the form --name=value."""
    try:
        lib = Mesos(path)
        slave = _start(lib, flags)
    except CallFailed as error:
        return fail(error)
    program.watch_clock("mesos-agent", lib)
    lib.join(slave)
    os._exit(0)  # without waiting for libprocess' threads


def _start(lib: Mesos, argv: list[str]) -> int:
    """Create the agent's objects and start it. Return the address of the Slave."""
    lib.do_without_curl()
    values = program.given(argv, NOT_WIRED)
    for needed in ("master", "work_dir"):
        if not values.get(needed):
            raise CallFailed(f"--{needed} is needed")
    if "image_providers" in values:
        # A nested container's first process is an orphan. Mesos notices its end only when it is reaped, which not
        # every pid 1 does at once: 2 s were measured. What Mesos does not reap stays a zombie until the agent ends.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    # slave::Flags : virtual logging::Flags : virtual flags::FlagsBase
    flags = lib.new(SLAVE + "5FlagsC1Ev")
    command = ["mesos-agent", *argv]
    lib.load_flags(virtual_base(flags, 1), "MESOS_", command)
    program.listen(values, 5051)
    name = zeros(32)  # process::ID::generate("slave") -> string
    lib["_ZN7process2ID8generateERK" + S](P(name), string("slave"))
    lib.start_libprocess(read_string(name), "mesos-agent-readwrite", "mesos-agent-readonly", command)

    fetcher = lib.new(SLAVE + "7FetcherC1ERKNS1_5FlagsE", P(flags))
    gc = lib.new(f"{SLAVE}16GarbageCollectorC1ERK{S}", string(values["work_dir"]))
    resolver = lib.attempt("_ZN5mesos14SecretResolver6createE" + OPTIONAL, option())
    containerizer = lib.attempt(
        CONTAINERIZER, P(flags), ctypes.c_bool(False), P(fetcher), P(gc), P(resolver), P(0), P(0), P(0)
    )
    detector = lib.attempt(
        f"_ZN5mesos6master8detector14MasterDetector6createE{OPTIONAL}SC_RKS3_I8DurationE",
        option(values["master"]),
        option(),
        option(),
    )
    authorizer = authorization.authorizer(lib, values.get("acls", ""))
    tokens = authorization.tokens(lib, values.get("jwt_secret_key", ""))
    files = lib.new(
        f"_ZN5mesos8internal5FilesC1E{OPTIONAL}RKS2_IPNS_10AuthorizerEE",
        option("mesos-agent-readonly"),
        option_of(authorizer),
    )
    updates = lib.new(SLAVE + "23TaskStatusUpdateManagerC1ERKNS1_5FlagsE", P(flags))
    estimator = lib.attempt("_ZN5mesos5slave17ResourceEstimator6createE" + OPTIONAL, option())
    qos = lib.attempt("_ZN5mesos5slave13QoSController6createE" + OPTIONAL, option())
    slave = lib.new(
        SLAVE_CONSTRUCTOR,
        P(name), P(flags), P(detector), P(containerizer), P(files), P(gc), P(updates), P(estimator), P(qos),
        P(tokens), P(0), P(0), P(zeros(64)), option(), option_of(authorizer),
        size=SLAVE_SIZE,
    )  # fmt: skip
    lib.spawn(slave)
    return slave
