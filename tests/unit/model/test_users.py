"""Users that jobs may run as: by the scheduler's list and by the host's own."""

import json
import os
import pwd
from typing import Any

import pytest
from click.testing import CliRunner

from isolator.host.not_started import NotStarted
from isolator.runs import run as runs
from isolator.runs.run import identity
from mesos_gpu.adapters import accounts
from mesos_gpu.adapters.accounts import account_of
from mesos_gpu.cli import main
from mesos_gpu.cli.jobs.show import runs_as
from mesos_gpu.model.apps.app import App, GpuOptions
from mesos_gpu.model.jobs.job import JobSpec
from mesos_gpu.model.jobs.permits import Permits, Root
from mesos_gpu.model.jobs.users import Account, Users
from mesos_gpu.model.tasks.assignment import Assignment
from mesos_gpu.policy.apps.workload import unsupported
from mesos_gpu.wire.jobs import decode

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: others run all jobs as themselves")
KNOWN = {
    "alice": Account("alice", 1000, frozenset({"users"})),
    "bob": Account("bob", 1001, frozenset({"users", "docker"})),
    "carol": Account("carol", 1002, frozenset({"sudo"})),
    "batch": Account("batch", 200),
    "gpu": Account("gpu", 201),
    "toor": Account("toor", 0),
}


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("", [("x", 1000), ("x", 65534), ("x", None)], [("x", 999), ("x", 0)]),
        ("alice", [("alice", 5), ("alice", None)], [("x", 1000), ("x", None)]),
        ("alice,2000-2999", [("alice", 5), ("x", 2000), ("x", 2999)], [("x", 1999), ("x", 3000)]),
        ("500-", [("x", 500), ("x", None)], [("x", 499)]),
    ],
)
def test_user_list_admits_its_users(text: str, yes: list[tuple[str, int]], no: list[tuple[str, int]]) -> None:
    users = Users.parse(text)
    assert [users.may_have(*who) for who in (*yes, *no)] == [True] * len(yes) + [False] * len(no)
    assert Users.parse(str(users)) == users


@pytest.mark.parametrize("text", ["root", "0-", "0", "9-5", "a b", ",", "1-99999999999", "Alice", "5"])
def test_user_list_that_is_unclear_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|neither"):
        Users.parse(text)
    words = ["scheduler", "--master", "m:1", "--state", "/nowhere/s", "--users", text]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, "--users" in done.stderr) == (2, True)


# --- the scheduler


@pytest.mark.parametrize(
    ("user", "users", "refused"),
    [
        ("alice", "", ""),
        ("bob", "", "bob is in the group docker"),
        ("bob", "bob", "bob is in the group docker"),
        ("carol", "", "group sudo"),
        ("batch", "", "--users 1000-,batch"),
        ("batch", "batch", ""),
        ("gpu", "", ""),
        ("stranger", "", ""),
        ("stranger", "alice", "jobs do not run as stranger here, but as alice or gpu"),
        ("root", "", "--allow-root host"),
        ("toor", "", "--allow-root host"),
        (None, "alice", ""),
    ],
)
def test_job_or_an_app_of_a_user_who_is_not_on_the_list_is_refused(
    user: str | None, users: str, refused: str
) -> None:
    permits = Permits(default_user="gpu", users=Users.parse(users), account_of=KNOWN.get)
    problems = decode(json.dumps({"command": "id", "user": user}).encode(), permits=permits)
    reasons = unsupported(App("/a", cmd="id", user=user), GpuOptions(), permits=permits)
    if not refused:
        assert (isinstance(problems, JobSpec), reasons) == (True, ())
        return
    assert isinstance(problems, list)
    assert [problem.path for problem in problems] == ["/user"]
    assert refused in problems[0].reason
    assert [(reason.field, reason.why) for reason in reasons] == [("user", problems[0].reason)]


def test_user_without_an_account_is_refused_where_all_hosts_have_the_accounts_of_this_one() -> None:
    here = Permits(default_user="gpu", account_of=KNOWN.get, same_accounts=True)
    why = here.problem_of_user("stranger", has_image=False)
    assert why is not None
    assert why.startswith("the hosts have no user stranger; name a user that they have (--user)")
    assert all(remedy in why for remedy in ("unix_users", "mesos-gpu access apply", "--user-pool"))
    for user in ("alice", "gpu", None):
        assert here.problem_of_user(user, has_image=False) is None
    elsewhere = Permits(default_user="gpu", account_of=KNOWN.get)
    assert elsewhere.problem_of_user("stranger", has_image=False) is None, "agents may know it"


def test_account_of_this_host_has_its_uid_and_groups() -> None:
    own = account_of(pwd.getpwuid(os.geteuid()).pw_name)
    assert own is not None
    assert own.uid == os.geteuid()
    root = account_of("root")
    assert root is not None
    assert "root" in root.groups
    assert (account_of("no-such-user"), account_of("a\0b")) == (None, None)


# --- the host


@root_only
@pytest.mark.parametrize(
    ("user", "env", "more", "refused"),
    [
        ("nobody", {}, {}, ""),
        ("daemon", {}, {}, "MESOS_GPU_USERS=1000-,daemon"),
        ("daemon", {}, {"user_is_default": True}, ""),
        ("daemon", {"MESOS_GPU_USERS": "daemon"}, {}, ""),
        ("nobody", {"MESOS_GPU_USERS": "daemon"}, {}, "but as daemon"),
        ("nobody", {"MESOS_GPU_USERS": "???"}, {}, "MESOS_GPU_USERS: '???'"),
        ("root", {}, {}, "MESOS_GPU_ALLOW_ROOT is nowhere, and must be host"),
        ("root", {}, {"image": "a"}, "must be image or host"),
        ("root", {"MESOS_GPU_ALLOW_ROOT": "image"}, {"image": "a"}, ""),
        ("root", {"MESOS_GPU_ALLOW_ROOT": "image"}, {}, "is image, and must be host"),
        ("root", {"MESOS_GPU_ALLOW_ROOT": "host"}, {}, ""),
        ("root", {"MESOS_GPU_ALLOW_ROOT": "1"}, {}, "is 1, and must be host"),
        ("root", {"MESOS_GPU_USERS": "root"}, {}, "MESOS_GPU_ALLOW_ROOT is nowhere"),
        (None, {}, {}, "names no user"),
        (None, {"MESOS_GPU_ALLOW_ROOT": "image"}, {}, "names no user"),
        (None, {"MESOS_GPU_ALLOW_ROOT": "host"}, {}, ""),
    ],
)
def test_host_list_of_users_decides_too(
    user: str | None, env: dict[str, str], more: dict[str, object], refused: str
) -> None:
    plan = Assignment("j", 1, user=user, **more)  # type: ignore[arg-type]
    if not refused:
        entry = identity(plan, env)
        assert entry is not None
        assert entry.pw_name == (user or "root")
        return
    with pytest.raises(NotStarted, match=refused.replace("?", r"\?")):
        identity(plan, env)


@root_only
def test_user_who_could_become_root_runs_nothing_whatever_the_lists_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "account_of", lambda name: Account(name, 65534, frozenset({"lxd"})))
    with pytest.raises(NotStarted, match="nobody is in the group lxd"):
        runs.identity(Assignment("j", 1, user="nobody", user_is_default=True), {"MESOS_GPU_USERS": "nobody"})


def test_root_may_be_allowed_in_images_alone() -> None:
    permits = Permits(Root.IMAGE)
    assert permits.problem_of_user("root", has_image=True) is None
    assert "set an image" in (permits.problem_of_user("root", has_image=False) or "")


@pytest.mark.parametrize(
    ("job", "shown"),
    [
        ({"runs_as": "alice", "image": None}, "alice"),
        ({"runs_as": None, "image": None}, "the user of its executor"),
        ({"runs_as": "root", "image": "a"}, "root, in its image"),
        ({"runs_as": "root", "image": None}, "root of the host, restricted only by isolation"),
    ],
)
def test_job_that_is_root_of_its_host_says_so(job: Any, shown: str) -> None:
    assert runs_as(job) == shown
