"""Settings of shares, from the scheduler's command line and its environment to what a share waits for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from mesos_gpu.cli import main
from mesos_gpu.engine.reading.jobs import explain_job
from mesos_gpu.engine.reading.view import View
from mesos_gpu.engine.settings import Settings
from mesos_gpu.model.ids import JobId
from mesos_gpu.model.shares.card import Ability, Sharing
from mesos_gpu.model.shares.request import Isolation
from mesos_gpu.scheduler import __main__ as command
from mesos_gpu.scheduler.options.options import Options, engine_settings
from tests.doubles.builders import World, gpu, offer


def settings_of(
    monkeypatch: pytest.MonkeyPatch, *words: str, env: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of the engine of a scheduler that is started with these arguments."""
    told: list[Settings] = []

    def run(options: Options) -> int:
        told.append(engine_settings(options))
        return 0

    monkeypatch.setattr(command, "run", run)
    line = ["scheduler", "--master", "m:1", "--state", "/nowhere/s", *words]
    done = CliRunner().invoke(main, line, env=env or {})
    assert done.exit_code == 0, done.output
    return told[0]


@pytest.mark.parametrize(
    ("words", "env", "isolation", "overcommit"),
    [
        ((), {}, Isolation.SHARED, 1.0),
        (("--gpu-isolation", "strict", "--gpu-compute-overcommit", "1.5"), {}, Isolation.STRICT, 1.5),
        (
            (),
            {"MESOS_GPU_SHARE_ISOLATION": "any", "MESOS_GPU_COMPUTE_OVERCOMMIT": "2"},
            Isolation.ANY,
            2.0,
        ),
        (("--gpu-isolation", "shared"), {"MESOS_GPU_SHARE_ISOLATION": "strict"}, Isolation.SHARED, 1.0),
    ],
)
def test_share_options_of_the_command_line_precede_the_environment(
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    env: dict[str, str],
    isolation: Isolation,
    overcommit: float,
) -> None:
    made = settings_of(monkeypatch, *words, env=env)
    assert (made.placing.isolation, made.placing.gpu_compute_overcommit) == (isolation, overcommit)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), {}),
        (("--mig", "dynamic"), {"MESOS_GPU_MIG": "dynamic"}),
        (
            ("--mps-percentages=any", "--mig=off"),
            {"MESOS_GPU_MIG": "off", "MESOS_GPU_MPS_PERCENTAGES": "any"},
        ),
        (
            ("--mps-across-users", "--user-pool", "60000-60009"),
            {"MESOS_GPU_USER_POOL": "60000-60009"},  # not that users share a server: a host says that itself
        ),
    ],
)
def test_share_options_reach_executors_and_monitors(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: dict[str, str]
) -> None:
    assert settings_of(monkeypatch, *words).programs.executor_env == told


@pytest.mark.parametrize(
    ("words", "env", "permitted"),
    [
        ((), {}, False),
        (("--mps-across-users",), {}, True),
        ((), {"MESOS_GPU_MPS_ACROSS_USERS": "true"}, True),
        (("--no-mps-across-users",), {"MESOS_GPU_MPS_ACROSS_USERS": "1"}, False),
    ],
)
def test_users_share_a_server_of_mps_if_both_operators_say_so(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], env: dict[str, str], permitted: bool
) -> None:
    settings = settings_of(monkeypatch, *words, env=env)
    for host_permits in (False, True):
        world = World(settings.changed(report_stale_s=1e9, sealed=False))
        world.register()
        able = ((Ability.MPS2, ""), (Ability.SHIM, ""))
        world.node("a1", replace(gpu("g1"), sharing=Sharing(80_000, able, mps_users=host_permits)))
        assert submit(world, "alices", gpu_milli=250, user="alice")
        assert submit(world, "bobs", gpu_milli=250, user="bob") is (permitted and host_permits)


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--gpu-isolation", "hard", "'hard' is not one of 'strict', 'shared', 'any'"),
        ("--mig", "on", "'on' is not one of 'static', 'dynamic', 'off'"),
        ("--mps-percentages", "50", "'50' is not one of 'measured', 'any'"),
        *(
            (
                "--gpu-compute-overcommit",
                text,
                f"{text!r} is not a number from 1 to 100 with at most 3 decimals",
            )
            for text in ("0.5", "nan", "inf", "1e9", "1.0005", "101", "-2", "")
        ),
    ],
)
def test_share_options_that_are_malformed_are_refused(option: str, text: str, said: str) -> None:
    done = CliRunner().invoke(main, ["scheduler", "--master", "m:1", "--state", "/nowhere/s", option, text])
    assert done.exit_code == 2
    assert said in done.stderr


def cluster(settings: Settings) -> World:
    world = World(settings.changed(report_stale_s=1e9, sealed=False))
    world.register()
    world.node("a1", replace(gpu("g1"), sharing=Sharing(80_000, ((Ability.SHIM, ""),))))
    return world


def submit(world: World, name: str, **fields: Any) -> bool:
    """Whether it starts."""
    world.submit(name, gpus=1, **fields)
    world.offers(offer(name, "a1", cpus=8))
    return world.job(name).task_id is not None


def test_share_isolation_of_a_job_defaults_to_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster(settings_of(monkeypatch, "--gpu-isolation", "strict"))
    assert not submit(world, "plain", gpu_milli=250)
    why = explain_job(View(world.state, world.settings, world.now), JobId("plain"))
    assert "cannot enforce a share with isolation strict" in why.summary
    assert submit(world, "content", gpu_milli=250, isolation=Isolation.SHARED)


def test_share_options_oversubscribe_compute_and_never_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster(settings_of(monkeypatch, "--gpu-compute-overcommit", "1.5"))
    half = {"gpu_compute_pct": 50, "gpu_memory_mib": 20_000}
    assert [submit(world, f"j{n}", **half) for n in range(4)] == [True, True, True, False]
    small = {"gpu_compute_pct": 1, "gpu_memory_mib": 20_001}
    once = cluster(settings_of(monkeypatch, "--gpu-compute-overcommit", "100"))
    assert [submit(once, f"j{n}", **small) for n in range(4)] == [True, True, True, False]
