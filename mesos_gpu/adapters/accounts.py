"""Unix accounts of this host."""

import grp
import os
import pwd

from mesos_gpu.model.jobs.users import Account


def account_of(name: str) -> Account | None:
    """Return the Unix account with a name; None if it does not exist."""
    try:
        return _account(pwd.getpwnam(name))
    except (KeyError, ValueError):  # ValueError: the name has a NUL
        return None


def account_of_uid(uid: int) -> Account | None:
    """Return the Unix account with a uid; None if it does not exist."""
    try:
        return _account(pwd.getpwuid(uid))
    except KeyError:
        return None


def _account(entry: pwd.struct_passwd) -> Account:
    groups = set()
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            groups.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue  # a group without a name; files belong to it by its number only
    return Account(entry.pw_name, entry.pw_uid, frozenset(groups))
