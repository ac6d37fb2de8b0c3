"""Upgrade of ledgers of earlier versions."""

import sqlite3


def bring_up(db: sqlite3.Connection, version: int, schema: str) -> None:
    """Upgrade a ledger to the present version, in the transaction of the caller.

    Args:
        db: Connection to the ledger.
        version: Version of the ledger, 1 or 2.
        schema: Statements that make the tables of the present version.
    """
    db.execute("ALTER TABLE claims RENAME TO old_claims")
    for statement in filter(str.strip, (schema if version == 1 else _claims_of(schema)).split(";")):
        db.execute(statement)
    if version == 1:
        db.execute(
            """INSERT INTO holdings (task, container, pid, start_ticks, boot_id, pid_namespace, since, traces)
               SELECT task, '', pid, start_ticks, boot_id, pid_namespace, min(claimed_at), '[]'
               FROM old_claims GROUP BY 1, 3, 4, 5, 6"""
        )
        db.execute(
            """INSERT INTO claims (gpu, holding)
               SELECT gpu, id FROM old_claims JOIN holdings USING (task, pid, start_ticks, boot_id, pid_namespace)"""
        )
    else:
        db.execute("INSERT INTO claims (gpu, holding) SELECT gpu, holding FROM old_claims")
    db.execute("DROP TABLE old_claims")


def _claims_of(schema: str) -> str:
    return schema[schema.index("CREATE TABLE claims") :]
