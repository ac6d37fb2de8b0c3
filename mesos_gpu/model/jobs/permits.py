"""What an operator lets jobs and apps ask for that is not everybody's: root, and services that command the cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mesos_gpu.model.jobs.users import Accounts, Users, nobody_known


class Control(Enum):
    """A service that commands the cluster. Tasks reach none, but for what they were given `control_access` to."""

    API = "api"  # the scheduler's REST interface
    MASTER = "master"


class Root(Enum):
    """Where jobs may run as root."""

    NOWHERE = "nowhere"
    IMAGE = "image"  # in a container with an image of its own
    HOST = "host"  # on the host's file system, too: root of the host but for capabilities and devices


#: What the owner of a job does whose user has no account.
HAVE_ACCOUNT: Final = (
    "name a user that they have (--user), have your name mapped to one below unix_users (mesos-gpu access apply), or "
    "have the operator give each job a user of its own (mesos-gpu scheduler --user-pool)"
)
ROOTS: Final = (Root.IMAGE.value, Root.HOST.value)  # what an operator may say


@dataclass(frozen=True, slots=True)
class Permits:
    """What this operator permits."""

    root: Root = Root.NOWHERE
    #: By the name of jobs or the id of an app, alone or with the user that it must run as: "/lb", "/lb@haproxy".
    control_access: Mapping[str, tuple[Control, ...]] = field(default_factory=dict)
    default_user: str | None = None  # of those that name none
    users: Users = field(default_factory=Users)
    account_of: Accounts = nobody_known  # on the scheduler's host; agents look for themselves
    secrets: bool = False  # whether there is a store of them
    same_accounts: bool = False  # whether all hosts have the accounts of the scheduler's host, and no others
    host_networks: tuple[str, ...] = ()  # names of networks in whose place apps are in the host's

    def controls_of(self, name: str, user: str | None) -> frozenset[Control]:
        """What jobs of that name, or an app of that id, may reach as `user`."""
        who = user or self.default_user
        permitted = (self.control_access.get(key, ()) for key in (name, f"{name}@{who}"))
        return frozenset(control for controls in permitted for control in controls)

    def problem_of_controls(self, asked: tuple[Control, ...], name: str, user: str | None) -> str | None:
        """Why it may not reach what it asked for, with the remedy; None: it may."""
        refused = [control.value for control in asked if control not in self.controls_of(name, user)]
        if not refused:
            return None
        named = f"{name}@{who}" if (who := user or self.default_user) else name
        return (
            f"{','.join(refused)} is not allowed to {named}; leave it out, or have the operator start the "
            f"scheduler with --control-access {named}={','.join(refused)}"
        )

    def problem_of_secrets(self, asked: Sequence[object]) -> str | None:
        """Why it gets none of the secrets that it asked for, with the remedy; None: it may."""
        if self.secrets or not asked:
            return None
        return (
            "this scheduler has no store of secrets; leave them out, or have its operator start it with --secrets-dir "
            "or --vault-url"
        )

    def problem_of_user(self, user: str | None, *, has_image: bool) -> str | None:
        """Why it may not run as `user`, with the remedy; None: it may, as far as is known here."""
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
            return "root is allowed here in an image only; set image, or another user"
        where = Root.IMAGE if has_image else Root.HOST
        return f"root is not allowed here; an operator allows it with --allow-root {where.value}"
