"""Accounts of this host."""

import grp
import os
import pwd

from mesos_gpu.model.jobs.users import Account


def account_of(name: str) -> Account | None:
    """Look an account up by its name; None: there is none."""
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: NUL
        return None
    groups = set()
    for gid in os.getgrouplist(entry.pw_name, entry.pw_gid):
        try:
            groups.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue  # a group without a name gives what its number gives on files
    return Account(entry.pw_name, entry.pw_uid, frozenset(groups))
