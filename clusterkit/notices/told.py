"""Which notices were sent: a table of the ledger. Each is claimed before it is sent, so it is sent once."""

from __future__ import annotations

import sqlite3

_TABLE = """CREATE TABLE IF NOT EXISTS told (
    event TEXT NOT NULL, name TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (event, name, number)
)"""


def claim(connection: sqlite3.Connection, event: str, name: str, number: int) -> bool:
    """Returns whether this process, and no other before, may tell; also true of the next submission's end.

    Args:
        connection: of the ledger, which commits each statement.
        event: one of the setting `on`.
        name: a run id or a group.
        number: of the submission that ended; of a group, the sum over its runs.
    """
    connection.execute(_TABLE)
    done = connection.execute("INSERT OR IGNORE INTO told VALUES (?, ?, ?)", (event, name, number))
    return done.rowcount == 1
