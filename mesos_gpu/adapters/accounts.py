"""Accounts of this host."""

import grp
import os
import pwd

from mesos_gpu.model.jobs.users import Account


def account_of(name: str) -> Account | None:
    """Look an account up by its name; None: there is none."""
    try:
        return _account(pwd.getpwnam(name))
    except (KeyError, ValueError):  # ValueError: NUL
        return None


def account_of_uid(uid: int) -> Account | None:
    """Look an account up by its number; None: there is none."""
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
            continue  # a group without a name gives what its number gives on files
    return Account(entry.pw_name, entry.pw_uid, frozenset(groups))
