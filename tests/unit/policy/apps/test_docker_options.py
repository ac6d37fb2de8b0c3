"""Options of docker run: what is passed on, and what is refused."""

from typing import Any

import pytest

from mesos_gpu.model.apps.app import DockerParameter
from mesos_gpu.model.jobs.docker_options import DockerOptions, Ulimit
from mesos_gpu.policy.apps.docker_options import Parameters, read_parameters


def read(*pairs: tuple[str, str], **how: Any) -> Parameters:
    return read_parameters([DockerParameter(key, value) for key, value in pairs], **how)


def options(*pairs: tuple[str, str]) -> DockerOptions | str:
    """The options that are passed on, or why the only parameter that is refused is."""
    made = read(*pairs)
    assert made.without_effect == ()
    if not made.refused:
        return made.options
    ((_, why),) = made.refused
    return why


def test_docker_options_passed_on() -> None:
    asked = options(
        ("label", "team=vision"), ("label", "bare"), ("shm-size", "2g"), ("ulimit", "memlock=-1"),
        ("ulimit", "nofile=1024:65536"), ("hostname", "trainer-0"), ("workdir", "/src"),
    )  # fmt: skip
    assert asked == DockerOptions(
        labels={"team": "vision", "bare": ""},
        shm_bytes=2 << 30,
        ulimits=(Ulimit("memlock", -1, -1), Ulimit("nofile", 1024, 65536)),
        hostname="trainer-0",
        directory="/src",
    )
    assert options() == DockerOptions()


def test_docker_options_of_the_container_itself() -> None:
    asked = options(
        ("add-host", "db:10.0.0.1"), ("add-host", "v6:::1"), ("dns", "10.0.0.53"), ("env", "A=b=c"), ("env", "E="),
        ("init", "true"), ("stop-timeout", "30"), ("log-driver", "local"), ("log-opt", "max-size=5m"),
    )  # fmt: skip
    assert asked == DockerOptions(
        hosts=("db:10.0.0.1", "v6:::1"),
        dns=("10.0.0.53",),
        env={"A": "b=c", "E": ""},
        init=True,
        stop_timeout_s=30,
        log_driver="local",
        log_options={"max-size": "5m", "max-file": "1"},
    )
    bounded = DockerOptions(log_driver="json-file", log_options={"max-size": "10m", "max-file": "3"})
    assert options(("log-opt", "max-file=3")) == bounded, "a log without bounds would fill the engine's disk"
    assert options(("log-driver", "none")) == DockerOptions(log_driver="none")


def test_log_does_not_fill_the_engines_disk() -> None:
    assert isinstance(options(("log-opt", "max-size=100m"), ("log-opt", "max-file=10")), DockerOptions)
    for size, files in (("999999g", "1"), ("100m", "11")):
        refusal = options(("log-opt", f"max-size={size}"), ("log-opt", f"max-file={files}"))
        assert refusal == "log-opt: max-size times max-file is more than 1 GiB; ask for less"


@pytest.mark.parametrize(
    ("text", "size"),
    [("67108864", 64 << 20), ("64m", 64 << 20), ("1GB", 1 << 30), ("5b", 5), ("8kb", 8 << 10)],
)
def test_sizes_are_read_as_docker_reads_them(text: str, size: int) -> None:
    assert options(("shm-size", text)) == DockerOptions(shm_bytes=size)


def test_docker_options_not_passed_on_are_refused_with_a_remedy() -> None:
    known = "add-host, dns, env, hostname, init, label, log-driver, log-opt, shm-size, stop-timeout, ulimit, workdir"
    assert options(("lxc-conf", "x")) == f"'lxc-conf' is not passed on, only {known}; leave it out"
    for key, remedy in (
        ("volume", "list it in container.volumes"),
        ("volumes-from", "list it in container.volumes"),
        ("device", "leave it out"),
        ("privileged", "leave it out"),
        ("cap-add", "leave it out"),
        ("pid", "leave it out"),
        ("net", "set networks"),
        ("publish", "container.portMappings"),
        ("user", "set the app's user"),
        ("entrypoint", "set cmd"),
    ):
        refusal = options(("label", "a=b"), (key, "x"))
        assert isinstance(refusal, str)
        assert remedy in refusal, key


def test_each_docker_parameter_that_is_refused_is_told_with_its_index() -> None:
    made = read(("label", "a=b"), ("cap-add", "ALL"), ("shm-size", "x"), ("init", "true"), ("pid", "host"))
    assert [index for index, _ in made.refused] == [1, 2, 4]
    assert made.options == DockerOptions(labels={"a": "b"}, init=True)


NVIDIA = (
    ("device", "/dev/nvidia0"),
    ("device", "/dev/nvidiactl"),
    ("gpus", "all"),
    ("runtime", "nvidia"),
    ("volume", "nvidia_driver_384.90:/usr/local/nvidia:ro"),
    ("volume-driver", "nvidia-docker"),
)


@pytest.mark.parametrize("pair", NVIDIA)
def test_nvidia_docker_parameter_is_told_to_set_gpus(pair: tuple[str, str]) -> None:
    ((index, why),) = read(("init", "true"), pair).refused
    assert (index, "set gpus: N" in why) == (1, True)
    made = read(("init", "true"), pair, has_gpus=True)
    assert (made.refused, [index for index, _ in made.without_effect]) == ((), [1])


def test_other_device_and_runtime_are_not_those_of_nvidia_docker() -> None:
    for pair in (("device", "/dev/fuse"), ("runtime", "runc"), ("volume-driver", "rexray")):
        ((_, why),) = read(pair, has_gpus=True).refused
        assert "gpus" not in why


def test_docker_parameters_without_effect_are_accepted_and_named() -> None:
    pairs = (
        ("name", "web"), ("restart", "always"), ("rm", "true"), ("memory-swap", "1g"), ("cpu-shares", "512"),
        ("log-driver", "syslog"), ("log-opt", "syslog-address=udp://10.0.0.1:514"), ("net", "host"),
        ("env", "NVIDIA_VISIBLE_DEVICES=all"),
    )  # fmt: skip
    made = read(*pairs, network="host")
    assert (made.options, made.refused) == (DockerOptions(), ())
    assert [index for index, _ in made.without_effect] == list(range(len(pairs)))
    assert "set gpus: N" in made.without_effect[-1][1]
    assert "mesos-gpu logs" in made.without_effect[5][1]
    assert read(("net", "host"), network="bridge").refused


def test_docker_options_with_impossible_values_are_refused() -> None:
    values = {
        "label": ["=x"],
        "shm-size": ["0", "1x", "-1", "9999999999t"],
        "ulimit": ["nofile", "rtprio=99", "nofile=2:1", "nofile=-1:1"],
        "hostname": ["a b", ""],
        "workdir": ["src"],
        "add-host": ["db", "db:host-gateway", "a b:10.0.0.1"],
        "dns": ["one"],
        "env": ["HOME", "=x", "A B=c"],
        "init": ["yes"],
        "stop-timeout": ["-1"],
        "log-driver": ["syslogd", ""],
        "log-opt": ["tag=x", "max-size=-1"],
    }
    for key, value in ((key, value) for key, some in values.items() for value in some):
        assert options((key, value)) == f"{key} cannot be {value!r}; write it as docker run has it"


GOOD: dict[str, list[str]] = {
    "label": ["a=", "a==b"],
    "ulimit": [f"{name}=1" for name in ("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nofile",
                                        "nproc", "sigpending", "stack")] + ["nofile=0:0", "nofile=5:5"],
    "hostname": ["a", "a-b.c", "a" * 63],
    "workdir": ["/", "/a b"],
    "init": ["false"],
    "stop-timeout": ["0", "999999"],
    "log-driver": ["json-file"],
    "log-opt": ["compress=true", "compress=false", "max-size=1k", "max-file=99"],
}  # fmt: skip
BAD: dict[str, list[str]] = {
    "ulimit": ["nice=1", "NOFILE=1", "nofile=-2", f"nofile={'9' * 19}", "nofile=1:", "nofile=2:1"],
    "hostname": ["-a", "a-", "a" * 64],
    "workdir": ["/a\x00"],
    "init": ["True", ""],
    "stop-timeout": ["1000000", "", "1.5", "\u0663"],
    "log-opt": ["compress=yes", "max-file=0", "max-file=100", "max-size=1", "max-size=1234567k", "compress"],
    "shm-size": ["", "m", f"{'9' * 19}", str(1 << 63)],
    "env": ["1A=x"],
    "add-host": [":10.0.0.1", "db:"],
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, some in GOOD.items() for value in some])
def test_docker_option_at_its_bound_is_passed_on(key: str, value: str) -> None:
    assert isinstance(options((key, value)), DockerOptions)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, some in BAD.items() for value in some])
def test_docker_option_beyond_its_bound_is_refused(key: str, value: str) -> None:
    assert options((key, value)) == f"{key} cannot be {value!r}; write it as docker run has it"


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("1K", 1 << 10), ("1Mb", 1 << 20), ("1G", 1 << 30), ("1t", 1 << 40), (str(10**17), 10**17),
     ("8388607t", 8388607 << 40)],
)  # fmt: skip
def test_size_of_shared_memory_has_a_unit(text: str, size: int) -> None:
    assert options(("shm-size", text)) == DockerOptions(shm_bytes=size)
    assert options(("shm-size", "8388608t")) == "shm-size cannot be '8388608t'; write it as docker run has it"


def test_docker_options_of_one_kind_add_up() -> None:
    asked = options(
        ("label", "a=1"), ("label", "b=2"), ("dns", "10.0.0.1"), ("dns", "::1"), ("env", "A=1"), ("env", "B=2"),
        ("init", "false"), ("log-opt", "compress=true"), ("log-opt", "max-file=2"),
    )  # fmt: skip
    assert asked == DockerOptions(
        labels={"a": "1", "b": "2"}, dns=("10.0.0.1", "::1"), env={"A": "1", "B": "2"}, init=False,
        log_driver="json-file", log_options={"max-size": "10m", "max-file": "2", "compress": "true"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("size", "files", "fits"),
    [
        ("1g", "1", True),
        ("512m", "2", True),
        ("999999k", "1", True),
        ("513m", "2", False),
        ("2g", "1", False),
    ],
)
def test_log_may_be_as_large_as_its_bound(size: str, files: str, fits: bool) -> None:
    asked = options(("log-opt", f"max-size={size}"), ("log-opt", f"max-file={files}"))
    assert isinstance(asked, DockerOptions) is fits
