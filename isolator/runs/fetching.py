"""Download of a task's files into its sandbox by Mesos' fetcher, run by the executor in the task's cgroup as
its user.

The agent would run that program itself: outside the task's cgroup, with children (tar, cp, hadoop) of the
task's user. Another process of that user could attach to one of them and use it to open every card. And with
URIs in the executor's own command it would be root: any file of the host could be read by a file: URI. So the
executor runs it, in the task's cgroup, without rights to gain; it becomes the task's user as if the agent ran
it (launcher/fetcher.cpp).

Files for root of an image are fetched with an unused uid, as root of the host could read all of its files.
The fetcher is as isolated from other tasks of the same user as the task: /proc/PID/environ and files of their
sandboxes are URIs, too. It fetches into a directory of its own, whose entries are then moved into the task's
sandbox by name.
"""

import json
import os
import pwd
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from isolator.agent.flags import flags_of_own_agent
from isolator.confinement.apart import apart_of
from isolator.confinement.enclosure import Enclosure
from isolator.host.fetch_bounds import FetchLimits, Watched
from isolator.host.not_started import KILLED_BEFORE_START, NotStarted
from isolator.host.sandbox import CONTAINERS, STREAMS, Sandbox
from isolator.host.user_pool import has_account
from isolator.runs.launcher import Helped, Launcher, LaunchFailed, Order
from isolator.runs.run import KILLED, Ended, give, identity, of_others, sandbox_of
from mesos_gpu.errors import MesosGpuError, Unavailable
from mesos_gpu.model.tasks.assignment import Assignment, Outcome

FETCHER: Final = "MESOS_GPU_FETCHER"  # path of mesos-fetcher; the agent is asked by default
CONTAINER: Final = "fetch"  # directory for the download, beside the agent's own nested sandboxes
STALL_S: Final = 60  # default of the agent's --fetcher_stall_timeout
#: Unused uid and gid: neither an account nor a pool has them.
STRANGER: Final = 0x7FFFFFFE
#: Capabilities to become the task's user: CHOWN, SETGID, SETUID (linux/capability.h).
_KEEPS: Final = (0, 6, 7)
#: Variables that the fetcher and hadoop need; none has rights of the executor.
_PASSED: Final = frozenset(
    {"PATH", "LANG", "TZ", "HADOOP_HOME", "HADOOP_CONF_DIR", "JAVA_HOME", "LD_LIBRARY_PATH", "SSL_CERT_FILE",
     "SSL_CERT_DIR", "CURL_CA_BUNDLE"}
)  # fmt: skip
#: Variables that may contain passwords. They are passed for URIs of `_NET` alone: of others, one may name a file that
#: contains the program's own environment (/proc/self/environ, or a link to that).
_PROXIES: Final = frozenset(
    {"http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}
)
_NET: Final = (
    "http://",
    "https://",
    "ftp://",
    "ftps://",
)  # `Fetcher::isNetUri` in slave/containerizer/fetcher.cpp
_FAILED: Final = "Failed to fetch '"  # message of the fetcher (launcher/fetcher.cpp) in its stderr


class Fetch:
    """Download of a task's files into its sandbox.

    Args:
        plan: Launch of the task.
        task: Mesos' task id.
        launcher: Process that becomes the task, which runs the fetcher before.
        enclosure: Enclosure of the task, set up.
        own: Environment of the executor.
    """

    def __init__(
        self, plan: Assignment, task: str, launcher: Launcher, enclosure: Enclosure, own: Mapping[str, str]
    ) -> None:
        self._plan, self._task, self._launcher, self._own = plan, task, launcher, own
        self._enclosure = enclosure
        self._aborted = False

    def run(self, nested: str = "") -> None:
        """Download all files into the sandbox, or into the sandbox of a container nested in the executor's,
        which is made.

        Args:
            nested: Name of the nested container, or "".

        Raises:
            NotStarted: The download failed, or exceeds what this host takes.
            MesosGpuError: The fetcher cannot be isolated, or the agent does not name its directory of
                programs.
            OSError: The sandbox is full.
        """
        sandbox, own = sandbox_of(self._own), identity(self._plan, self._own)
        user = _on_the_host(own, self._plan)
        uid, gid = _ids(user)
        if uid != os.geteuid() and user is not None:
            # the fetcher runs as that user, and must be able to pass the sandbox
            give(sandbox, user, writes=False)
        with Sandbox(sandbox) as place:
            place.keep(CONTAINERS)
            with place.enter(CONTAINERS) as above:
                above.make(CONTAINER, uid, gid)
                try:
                    self._fetch(os.path.join(sandbox, CONTAINERS, CONTAINER), user)
                    if nested:
                        above.make(nested, *_ids(own))
                    with place.enter(*((CONTAINERS, nested) if nested else ())) as target:
                        _move(above, target)
                finally:
                    above.remove(CONTAINER)

    def abort(self) -> None:
        """Cut `run` short, from any thread."""
        self._aborted = True
        self._launcher.abort()

    def _fetch(self, directory: str, user: pwd.struct_passwd | None) -> None:
        if self._plan.upload:
            self._bring(directory, user)
        for net, uris in groupby(self._plan.fetch, _is_net):
            helped = self._help(self._order(directory, user, [*uris], proxies=net), directory)
            if helped.code:
                raise self._failed(helped)

    def _bring(self, directory: str, user: pwd.struct_passwd | None) -> None:
        """Receive and extract the archive that the job's submitter uploaded. Only this process can write the
        archive.
        """
        from isolator.agent import uploads  # deferred: few tasks need it

        limits = FetchLimits.on(directory, self._own)
        with Sandbox(os.path.dirname(directory)) as above:
            above.put(uploads.ARCHIVE, b"")
            try:
                with os.fdopen(above.hold(uploads.ARCHIVE), "r+b") as file:
                    request = uploads.Wanted(self._plan, self._task, self._own, limits)
                    uploads.receive(request, file, aborted=lambda: self._aborted)
                    uploads.look_through(file, limits)
                archive = os.path.join(os.path.dirname(directory), uploads.ARCHIVE)
                helped = self._help(self._kept(uploads.extraction(archive, directory), {}, user), directory)
            finally:
                above.unlink(uploads.ARCHIVE)
        if helped.code and (why := self._lack()):
            raise NotStarted(f"the job's archive cannot be extracted: {why}", Outcome(signal=KILLED))
        if helped.code:
            last_line = (helped.said.strip().splitlines() or [""])[-1]
            raise NotStarted(f"the job's archive cannot be extracted: {last_line}")

    def _help(self, order: Order, directory: str) -> Helped:
        """Run a program by the launcher while watching the size of the download."""
        if self._aborted:
            raise NotStarted(KILLED_BEFORE_START)
        try:
            with Watched(directory, FetchLimits.on(directory, self._own), self._launcher.abort):
                return self._launcher.help(order)
        except LaunchFailed as error:
            raise _explained(error, order) from error

    def _order(
        self,
        directory: str,
        user: pwd.struct_passwd | None,
        uris: Sequence[Mapping[str, object]],
        *,
        proxies: bool,
    ) -> Order:
        """Return the order to run mesos-fetcher."""
        info: dict[str, object] = {
            "sandbox_directory": directory,
            "items": [{"uri": dict(uri), "action": "BYPASS_CACHE"} for uri in uris],
            "stall_timeout": {"nanoseconds": STALL_S * 10**9},
        }
        becomes = user
        if user is not None and user.pw_uid != os.geteuid() and has_account(user):
            # the fetcher changes to the user itself, and knows users only by name
            info["user"], becomes = user.pw_name, None
        given = {name: self._own[name] for name in _PROXIES & self._own.keys()} if proxies else {}
        return self._kept((self._program(),), {"MESOS_FETCHER_INFO": json.dumps(info), **given}, becomes)

    def _kept(self, argv: tuple[str, ...], env: Mapping[str, str], user: pwd.struct_passwd | None) -> Order:
        """Return the order to run a program in the task's enclosure.

        Args:
            user: User that it becomes; None for the executor's.
        """
        apart, sandbox = apart_of(self._own), sandbox_of(self._own)
        order = Order(
            argv=argv,
            # the task's id, by which the process is found if the executor dies
            env={k: v for k, v in self._own.items() if k in _PASSED} | {"MESOS_TASK_ID": self._task, **env},
            cwd=sandbox,
            keeps=_KEEPS,
            domain=apart.domain,
            filter=apart.program.hex(),
        )
        if user is not None and user.pw_uid != os.geteuid():
            order = replace(order, user=(user.pw_uid, user.pw_gid, ()))
        enclosure = self._enclosure
        if not enclosure.isolated:
            return order
        return replace(
            order,
            cgroups=enclosure.joins(),
            nodes=(),
            hidden=of_others(sandbox),
            refused=str(enclosure.refused),
            denied=enclosure.fence.probes() if enclosure.fence is not None else (),
        )

    def _program(self) -> str:
        """Return the path of mesos-fetcher."""
        if path := self._own.get(FETCHER):
            return path
        flags = flags_of_own_agent(self._own)
        if "launcher_dir" not in flags:
            raise Unavailable(
                "the agent does not name its directory of programs (launcher_dir)",
                remedy=f"set {FETCHER} on it to the path of mesos-fetcher",
            )
        return os.path.join(flags["launcher_dir"], "mesos-fetcher")

    def _lack(self) -> str:
        """Return the words for a task whose memory was used up by what fetches for it; "" if it was not."""
        from isolator.runs.memory import explained

        return explained(Ended(signal=KILLED), self._enclosure.limits.memory, self._plan.mem_mib).limit

    def _failed(self, helped: Helped) -> NotStarted:
        """Return the error for a fetcher that failed: a lack of memory, a URI that cannot be fetched, or a
        fault of the host.
        """
        print(helped.said, file=sys.stderr, flush=True)  # the executor's log
        if why := self._lack():
            return NotStarted(f"files could not be fetched: {why}", Outcome(signal=KILLED))
        if why := failure_in(helped.said):
            return NotStarted(why)
        how = f"exit code {helped.code}" if helped.code > 0 else f"signal {-helped.code}"
        last_line = (helped.said.strip().splitlines() or [""])[-1]
        names = ", ".join(str(uri.get("value")) for uri in self._plan.fetch)
        return NotStarted(
            f"mesos-fetcher did not fetch {names}: {how}" + (f": {last_line}" if last_line else ""),
            Outcome(infrastructure=True),
        )


def _on_the_host(user: pwd.struct_passwd | None, plan: Assignment) -> pwd.struct_passwd | None:
    """Return the user that fetches, on the host: an unused one in place of an image's root, who could fetch
    any file.
    """
    if plan.image is None or user is None or user.pw_uid != 0:
        return user
    return pwd.struct_passwd(("", "x", STRANGER, STRANGER, "", "/", "/bin/sh"))


def _ids(user: pwd.struct_passwd | None) -> tuple[int, int]:
    """The user's uid and gid; without a user, those of this process."""
    return (user.pw_uid, user.pw_gid) if user is not None else (os.geteuid(), os.getegid())


def _is_net(uri: Mapping[str, object]) -> bool:
    return str(uri.get("value")).lower().startswith(_NET)


def failure_in(text: str) -> str:
    """Return the fetcher's message on a URI that it could not fetch; "" if it has none."""
    message = text.rpartition(_FAILED)[2] if _FAILED in text else ""
    uri, _, why = message.partition("\n")[0].partition("': ")
    return f"could not fetch {uri}: {why}" if why else ""


def _explained(error: LaunchFailed, order: Order) -> MesosGpuError:
    what = (
        f"{order.argv[0]} cannot be run"
        if error.step == "exec"
        else "the program that fetches files cannot be isolated"
    )
    return MesosGpuError(
        f"{what} ({error.step}): {error.strerror}",
        remedy=f"run mesos-gpu doctor on this host; set {FETCHER} on its agent to use another program",
    )


def _move(above: Sandbox, target: Sandbox) -> None:
    """Move what was fetched into the sandbox, unless a name is taken."""
    with above.enter(CONTAINER) as source:
        if taken := target.take(source, but=STREAMS):
            raise NotStarted(f"{taken} was fetched, but the sandbox has a file of that name already")
