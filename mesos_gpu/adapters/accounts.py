"""Accounts of this host."""

import grp
import os
import pwd

from mesos_gpu.model.jobs.users import Account


def account_of(name: str) -> Account | None:
    """One by its name; None: there is none."""
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):  # ValueError: NUL
        return None
    groups = set()
    for gid in os.getgrouplist(found.pw_name, found.pw_gid):
        try:
            groups.add(grp.getgrgid(gid).gr_name)
        except KeyError:
            continue  # a group without a name gives what its number gives on files
    return Account(found.pw_name, found.pw_uid, frozenset(groups))
