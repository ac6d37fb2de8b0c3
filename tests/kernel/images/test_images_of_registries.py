"""Tasks with an image of a registry that the executor runs itself."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import registries
from tests.doubles.scripted_agent import ScriptedAgent, scripted_agent
from tests.kernel.images.made import blob_of, file, tar
from tests.kernel.images.test_own_images import of_registry, run, said
from tests.registries import push

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def registry(open_directory: Path) -> Iterator[tuple[str, Path]]:
    """Give the address and the directory of a registry."""
    directory = open_directory / "registry"
    directory.mkdir()
    if shutil.which("docker-registry") is None:
        pytest.skip("docker-registry is not installed (Debian: docker-registry)")
    with registries.registry(directory) as running:
        yield running.url, directory


def packed(data: bytes, program: str) -> bytes:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    return subprocess.run([program, "-cq"], input=data, capture_output=True, check=True).stdout


def test_layers_come_from_a_registry_once_and_hide_what_is_below(
    directory: Path, agent: ScriptedAgent, base: bytes, registry: tuple[str, Path]
) -> None:
    address, place = registry
    layers = [
        packed(base, "gzip"),
        packed(tar(file("data/old", b"1"), file("data/both", b"1"), file("all/old", b"1")), "zstd"),
        tar(file("data/.wh.old"), file("data/both", b"2"), file("all/.wh..wh..opq"), file("all/new", b"2")),
    ]
    push(address, "team/app", "1", {"Env": ["PATH=/bin"]}, layers=layers, oci=True)
    look = "ls /data /all; cat /data/both; rm /data/both 2>/dev/null; true"
    with of_registry(directory, agent, address) as one:
        assert said(one, look, "team/app:1") == ["/all:", "new", "", "/data:", "both", "2"]
    for each in layers:  # whether the registry has them is asked for, and not what is in them
        blob_of(place, each).write_bytes(bytes(len(each)))
    with scripted_agent() as other, of_registry(directory, other, address) as one:
        lines = said(one, look, "team/app:1")
        assert lines[-2:] == ["both", "2"], one.stderr()


def test_layer_of_a_host_is_given_only_to_jobs_to_which_the_registry_shows_it(
    directory: Path, agent: ScriptedAgent, base: bytes, registry: tuple[str, Path]
) -> None:
    """A manifest may name layers that another repository has: not all registries see to that."""
    address, place = registry
    secret = tar(file("secret", os.urandom(50).hex().encode()))
    push(address, "team/private", "1", {"Env": ["PATH=/bin"]}, layers=[base, secret])
    push(address, "other/app", "1", {"Env": ["PATH=/bin"]}, layers=[base, secret])
    with of_registry(directory, agent, address) as one:
        said(one, "true", "team/private:1")
    digest = blob_of(place, secret).parent.name
    shutil.rmtree(place / "data/docker/registry/v2/repositories/other/app/_layers/sha256" / digest)
    with scripted_agent() as other, of_registry(directory, other, address) as one:
        run(one, "cat /secret", "other/app:1")
        message, outcome = one.end("TASK_FAILED")
    assert f"there is no layer or configuration sha256:{digest} of other/app:1" in message
    assert not outcome.infrastructure


@pytest.mark.long
def test_layer_with_a_wrong_digest_is_the_hosts_or_registrys_fault_and_leaves_nothing(
    directory: Path, agent: ScriptedAgent, base: bytes, registry: tuple[str, Path]
) -> None:
    address, place = registry
    good = tar(file("unique", os.urandom(1000)))
    push(address, "team/wrong", "1", {"Env": ["PATH=/bin"]}, layers=[base, good])
    blob = blob_of(place, good)
    blob.write_bytes(good[:600] + b"X" + good[601:])
    with of_registry(directory, agent, address) as one:
        run(one, "true", "team/wrong:1")
        message, outcome = one.end("TASK_FAILED")
    assert "another digest" in message
    assert "push or save the image again" in message
    assert outcome.infrastructure
    kept = {path.name for path in (directory / "node/images").iterdir()} - {"roots"}
    assert len(kept) == 2  # the good layer, and its lock


@pytest.mark.long
def test_layer_that_the_registry_does_not_have_is_the_images_fault(
    directory: Path, agent: ScriptedAgent, base: bytes, registry: tuple[str, Path]
) -> None:
    address, place = registry
    lost = tar(file("lost", os.urandom(100)))
    push(address, "team/lost", "1", {"Env": ["PATH=/bin"]}, layers=[base, lost])
    blob_of(place, lost).unlink()
    with of_registry(directory, agent, address) as one:
        run(one, "true", "team/lost:1")
        message, outcome = one.end("TASK_FAILED")
    assert "there is no layer or configuration sha256:" in message
    assert not outcome.infrastructure


@pytest.mark.long
def test_image_for_another_platform_is_refused(
    directory: Path, agent: ScriptedAgent, base: bytes, registry: tuple[str, Path]
) -> None:
    push(
        registry[0],
        "team/other",
        "1",
        {"Env": ["PATH=/bin"]},
        layers=[base],
        platform={"os": "linux", "architecture": "s390x"},
    )
    with of_registry(directory, agent, registry[0]) as one:
        run(one, "true", "team/other:1")
        message, outcome = one.end("TASK_FAILED")
    assert "is not made for linux/" in message
    assert "s390x" in message
    assert not outcome.infrastructure


@pytest.mark.long
def test_layer_that_is_no_layer_is_the_images_fault(
    directory: Path, agent: ScriptedAgent, base: bytes, registry: tuple[str, Path]
) -> None:
    push(registry[0], "team/bad", "1", {"Env": ["PATH=/bin"]}, layers=[base, tar(file("../up"))])
    with of_registry(directory, agent, registry[0]) as one:
        run(one, "true", "team/bad:1")
        message, outcome = one.end("TASK_FAILED")
    assert "a layer of the image cannot be unpacked: the name '../up'" in message
    assert not outcome.infrastructure


@pytest.mark.long
def test_full_disk_is_the_hosts_fault(
    directory: Path, agent: ScriptedAgent, base: bytes, registry: tuple[str, Path]
) -> None:
    layers = [base, tar(file("large", os.urandom(8 << 20)))]
    push(registry[0], "team/large", "1", {"Env": ["PATH=/bin"]}, layers=layers)
    cache = directory / "cache"
    cache.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", cache], check=True)
    try:
        with of_registry(directory, agent, registry[0], MESOS_GPU_IMAGE_CACHE=str(cache)) as one:
            run(one, "true", "team/large:1")
            message, outcome = one.end("TASK_FAILED")
        assert "No space left on device" in message
        assert "MESOS_GPU_IMAGE_CACHE_MIB" in message
        assert outcome.infrastructure
        assert [path.name for path in cache.iterdir() if path.name.endswith(".part")] == []
    finally:
        subprocess.run(["umount", cache], check=True)


@pytest.mark.long
def test_registry_that_does_not_answer_is_named(directory: Path, agent: ScriptedAgent) -> None:
    with of_registry(directory, agent, "http://127.0.0.1:9") as one:
        run(one, "true", "team/app:1")
        message, outcome = one.end("TASK_FAILED")
    assert "the registry http://127.0.0.1:9 cannot be read" in message
    assert outcome.infrastructure
