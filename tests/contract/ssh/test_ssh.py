"""OpenSSH's client against a real server, on a host in namespaces: what comes back, who is refused, what is left."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mesos_gpu.adapters.ssh.client import MAX_BYTES, Done
from mesos_gpu.cli import main
from mesos_gpu.errors import Unavailable
from mesos_gpu.local.network import Network
from tests.remote.hosts import RemoteHost, make_keys, missing, remote_host, write_file

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def hosts(open_directory: Path) -> Iterator[dict[str, RemoteHost]]:
    make_keys(open_directory / "keys")
    network = Network(open_directory)
    with ExitStack() as stack:
        stack.callback(network.close)
        network.open()
        yield {
            name: stack.enter_context(
                remote_host(open_directory / "keys", open_directory / name, network.add(name))
            )
            for name in ("m", "s", "z")
        }


@pytest.fixture
def host(hosts: dict[str, RemoteHost]) -> RemoteHost:
    return hosts["m"]


def test_a_script_gets_its_words_and_what_it_reads_and_tells_its_end(host: RemoteHost) -> None:
    words = ["a b", "$(id)", "it's", "", "\"'`;&|\n*"]
    script = "printf '%s|' \"$@\"; cat; echo oops >&2; exit 3"
    done = host.ssh.run(script, words, b"secret \xff", timeout_s=60)
    assert done == Done(3, "".join(f"{word}|" for word in words) + "secret \ufffdoops\n")
    assert host.run("id -u; hostname -I").output.split() == ["0", host.host.ip]


def test_ssh_input_is_on_no_command_line(host: RemoteHost) -> None:
    done = host.ssh.run(
        "cat >/dev/null; cat /proc/[0-9]*/cmdline | tr '\\0' ' '", stdin=b"hush-hush", timeout_s=60
    )
    assert "sshd" in done.output
    assert "hush-hush" not in done.output
    assert not [word for word in host.ssh.command("cat") if "hush" in word]


def test_a_host_whose_key_is_not_known_or_is_another_is_refused(host: RemoteHost, tmp_path: Path) -> None:
    unknown = tmp_path / "unknown"
    unknown.touch()
    with pytest.raises(Unavailable, match="Host key verification failed") as refusal:
        replace(host.ssh, known_hosts=unknown).run("touch /reached", timeout_s=60)
    assert str(unknown) in refusal.value.remedy
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    unknown.write_text(f"{host.host.ip} {(tmp_path / 'other.pub').read_text()}")
    with pytest.raises(Unavailable, match="Host key verification failed"):
        replace(host.ssh, known_hosts=unknown).run("touch /reached", timeout_s=60)
    assert unknown.read_text().count("\n") == 1, "nothing is added"
    loose = replace(host.ssh, known_hosts=unknown, options={"StrictHostKeyChecking": "no"})
    with pytest.raises(Unavailable, match="Host key verification failed"):
        loose.run("touch /reached", timeout_s=60)
    assert host.run("ls /reached").code != 0


def test_ssh_without_an_accepted_key_asks_for_nothing(host: RemoteHost, tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    with pytest.raises(Unavailable, match="Permission denied") as refusal:
        replace(host.ssh, identity=tmp_path / "other").run("true", timeout_s=60)
    assert "passwords are not supported" in refusal.value.remedy


def test_a_port_without_a_listener_is_reported(host: RemoteHost) -> None:
    with pytest.raises(Unavailable, match=r"port 23: .*Connection refused"):
        replace(host.ssh, port=23).run("true", timeout_s=60)


def test_ssh_command_that_does_not_end_is_given_up_with_its_output(host: RemoteHost) -> None:
    began_at = time.monotonic()
    with pytest.raises(Unavailable, match="the script did not end within 10 s; its output so far:\nbegun"):
        host.ssh.run("echo begun; sleep 600", timeout_s=10)
    assert time.monotonic() - began_at < 120


def test_a_host_that_prints_without_end_fills_no_memory(host: RemoteHost) -> None:
    with pytest.raises(Unavailable, match=f"prints more than {MAX_BYTES} bytes"):
        host.ssh.run("yes", timeout_s=60)


# --- what `cluster apply` makes of failures

ROLES = {
    "m": "roles: [master]",
    "s": "roles: [scheduler]",
    "z": "roles: [agent], gpus: 1",
}


def described(hosts: dict[str, RemoteHost], directory: Path, **roles: str) -> Path:
    made = {name: (hosts[name], text) for name, text in (ROLES | roles).items()}
    file = directory / "cluster.yaml"
    write_file(hosts["m"].keys, file, made)
    return file


def applied(file: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["cluster", "apply", str(file), "--yes", *words])


OURS = "find /etc /usr/lib /var/lib -path '*mesos-gpu*' -type f"


def ours(host: RemoteHost) -> str:
    """Files of ours there, and what a script could have left: its /var/tmp is not this machine's."""
    return host.run(f"{OURS} | sort; ls /var/tmp").output


@pytest.mark.on_change("install")
def test_a_failing_host_keeps_what_it_had_and_those_after_it_are_left(
    hosts: dict[str, RemoteHost], tmp_path: Path
) -> None:
    file = described(hosts, tmp_path)
    for host in hosts.values():
        assert host.run(f"{OURS} -delete").code == 0  # whatever another test has put there
    # In the way of the last but some of its files.
    assert hosts["s"].run("mkdir -p /etc/logrotate.d/mesos-gpu-scheduler").code == 0
    before = ours(hosts["s"])
    try:
        done = applied(file, "--only", "files", "--json")
        assert done.exit_code == 1, done.output
        said = json.loads(done.stdout)
        assert (said["changed"], said["left"]) == (["m"], ["z"])
        assert "/etc/logrotate.d/mesos-gpu-scheduler is a directory" in said["failed"]["s"]
        assert ours(hosts["s"]) == before, "nothing is half done"
        assert ours(hosts["z"]) == ""
    finally:
        hosts["s"].run("rmdir /etc/logrotate.d/mesos-gpu-scheduler")
    again = applied(file, "--only", "files")
    assert "m: nothing to change" in again.output
    assert "Changed: s, z" in again.output
    assert applied(file, "--only", "files").output.count("nothing to change") == 3


@pytest.mark.on_change("install")
def test_a_host_that_is_away_keeps_all_others_as_they_are(
    hosts: dict[str, RemoteHost], tmp_path: Path
) -> None:
    before = ours(hosts["m"])
    file = described(hosts, tmp_path, z=f"{ROLES['z']}, ssh: {{port: 23}}")
    done = applied(file, "--only", "files")
    assert done.exit_code == 69
    assert "nothing was changed: z: " in done.output
    assert ours(hosts["m"]) == before


@pytest.mark.on_change("install")
def test_a_host_that_is_not_as_the_file_says_is_refused(hosts: dict[str, RemoteHost], tmp_path: Path) -> None:
    file = described(hosts, tmp_path, z="roles: [agent], gpus: 1, cgroups: v1")
    done = applied(file, "--host", "z", "--only", "files")
    assert done.exit_code == 78
    assert "z: cgroups: v1 is given, but the host has v2" in done.output


@pytest.mark.on_change("install")
def test_ssh_host_is_changed_by_one_apply_at_a_time(hosts: dict[str, RemoteHost], tmp_path: Path) -> None:
    file = described(hosts, tmp_path)
    lock = "exec 9>/run/mesos-gpu-cluster.lock; flock 9; echo locked; cat"
    with subprocess.Popen(
        hosts["m"].ssh.command(lock), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        done = applied(file, "--host", "m", "--only", "files")
        assert done.exit_code == 1
        assert "another apply is under way on this host" in done.output
        other.kill()


@pytest.mark.on_change("install")
def test_a_service_that_does_not_start_is_told_with_its_log(
    hosts: dict[str, RemoteHost], tmp_path: Path
) -> None:
    file = described(hosts, tmp_path, s="roles: [scheduler], options: --no-such-option")
    done = applied(file, "--host", "s", "--only", "files", "--only", "services")
    assert done.exit_code == 1
    assert (
        "mesos-gpu-scheduler.service does not run; the end of systemd's journal, and of its log:"
        in done.output
    )
    assert "No such option" in done.output
