"""Permissions of jobs and apps that operators grant: running as root, and reaching services that control the
cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.model.jobs.users import Accounts, Users, nobody_known


class Control(Enum):
    """A service that controls the cluster. Tasks reach none of them unless they have `control_access`."""

    API = "api"  # the scheduler's REST interface
    MASTER = "master"


class Root(Enum):
    """Condition for running jobs as root."""

    NOWHERE = "nowhere"
    IMAGE = "image"  # in a container with an image of its own
    HOST = "host"  # also on the host's file system: root of the host, without capabilities and devices


#: Remedies for a job whose user has no account on the hosts.
HAVE_ACCOUNT: Final = (
    "name a user that they have (--user), have your name mapped to one below unix_users (mesos-gpu access apply), or "
    "have the operator give each job a user of its own (mesos-gpu scheduler --user-pool)"
)
ROOTS: Final = (Root.IMAGE.value, Root.HOST.value)  # values of the option --allow-root


@dataclass(frozen=True, slots=True)
class Permits:
    """Permissions that the operator of this scheduler grants."""

    root: Root = Root.NOWHERE
    #: Services by name of jobs or id of an app, alone or with the required user: "/lb", "/lb@haproxy".
    control_access: Mapping[str, tuple[Control, ...]] = field(default_factory=dict)
    default_user: str | None = None  # user of jobs that name none
    users: Users = field(default_factory=Users)
    account_of: Accounts = nobody_known  # looks up accounts on the scheduler's host; agents check their own
    secrets: bool = False  # whether the scheduler has a store of secrets
    same_accounts: bool = False  # whether all hosts have exactly the accounts of the scheduler's host
    host_networks: tuple[str, ...] = ()  # names of networks for which apps get the host's network instead

    def controls_of(self, name: str, user: str | None) -> frozenset[Control]:
        """Return the services that jobs with a name, or an app with an id, may reach when they run as `user`."""
        who = user or self.default_user
        permitted = (self.control_access.get(key, ()) for key in (name, f"{name}@{who}"))
        return frozenset(control for controls in permitted for control in controls)

    def problem_of_controls(self, asked: tuple[Control, ...], name: str, user: str | None) -> str | None:
        """Return why requested services are not allowed, with the remedy; None if all are allowed."""
        refused = [control.value for control in asked if control not in self.controls_of(name, user)]
        if not refused:
            return None
        subject = f"{name}@{who}" if (who := user or self.default_user) else name
        return (
            f"{','.join(refused)} is not allowed to {subject}; leave it out, or have the operator start the "
            f"scheduler with --control-access {subject}={','.join(refused)}"
        )

    def problem_of_secrets(self, asked: Sequence[object]) -> str | None:
        """Return why requested secrets are not available, with the remedy; None if they are."""
        if self.secrets or not asked:
            return None
        return (
            "this scheduler has no store of secrets; leave them out, or have its operator start it with --secrets-dir "
            "or --vault-url"
        )

    def problem_of_user(self, user: str | None, *, has_image: bool) -> str | None:
        """Return why jobs may not run as `user`, with the remedy; None if they may, as far as this host knows."""
        account = None if user is None else self.account_of(user)
        if user == "root" or (account is not None and account.uid == 0):
            return self._problem_of_root(has_image=has_image)
        if user not in (None, self.default_user) and account is None and self.same_accounts:
            return f"the hosts have no user {user}; {HAVE_ACCOUNT}"
        if account is not None and account.mighty:
            return f"{account.mighty}; name another user"
        if user in (None, self.default_user) or self.users.may_have(
            user or "", account.uid if account else None
        ):
            return None
        return (
            f"jobs do not run as {user} here, but as {self.users}"
            f"{f' or {self.default_user}' if self.default_user else ''}; name another user, or have the operator "
            f"start the scheduler with --users {self.users},{user}"
        )

    def _problem_of_root(self, *, has_image: bool) -> str | None:
        if self.root is Root.HOST or (has_image and self.root is Root.IMAGE):
            return None
        if self.root is Root.IMAGE:
            return "root is allowed only in a container with an image; set an image, or another user"
        where = Root.IMAGE if has_image else Root.HOST
        return f"root is not allowed; set another user, or have the operator allow it with --allow-root {where.value}"
