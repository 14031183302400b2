"""The errors of stores: a few classes, the same for every engine, with nothing of Pony or a driver in their names."""

from __future__ import annotations

from typing import Final

import falcon

RETRY_AFTER: Final = 2
"""Seconds that a client is asked to wait: about what a store takes to be noticed as back."""


class StoreError(Exception):
    """Something is wrong with a store, or with how it is used; unless a subclass says more, a defect to mend."""


class MisusedStore(StoreError):  # noqa: N818 - the classes are named for what happened, as Duplicate and Busy are
    """A store operation breaks a rule of the store layer: nested, across stores, writing while reading, leaking."""


class Duplicate(StoreError):  # noqa: N818 - reads better where it is caught
    """A row with this unique value is there already; nothing of the operation was kept.

    Attributes:
        columns: The columns of the violated constraint, as far as the engine tells; else empty.
    """

    def __init__(self, message: str, columns: tuple[str, ...] = ()) -> None:
        """Keep the columns."""
        super().__init__(message)
        self.columns = columns


class Busy(StoreError):  # noqa: N818 - reads better where it is caught
    """Others held what the operation needs for too long, also after retries; nothing of the operation was kept."""


class Unavailable(StoreError):  # noqa: N818 - reads better where it is caught
    """The store cannot be reached or written at the moment, and nothing of the operation was kept.

    It recovers by itself once the cause is gone.
    """


class ConnectionLost(Unavailable):
    """The database server cannot be reached, or hung up."""


class Refused(Unavailable):
    """The database server is there, and takes no further connection at the moment."""


class Damaged(Unavailable):
    """The file of a store was deleted or replaced, or what is in it can't be read."""


class Overran(Busy):
    """A statement took longer than it may; it is not run again, since it would do so once more."""


class OutcomeUnknown(StoreError):  # noqa: N818 - reads better where it is caught
    """The operation may have been kept or not: the connection was lost at its commit, and nobody can tell any more."""


class SetupError(StoreError):
    """A store cannot be opened until somebody mends something; the message says what."""


class MigrationError(SetupError):
    """A store's schema cannot be brought to what the plugin's code needs; the message says which step and why."""


def http_error(error: StoreError) -> falcon.HTTPError:
    """Return what an HTTP client is told about an error that no resource caught, with nothing internal in it.

    Args:
        error: What a store operation raised.

    Returns:
        503 with `Retry-After` where trying again later helps, without it where it may do harm (CONTRACT 2), 409 for a
        duplicate, else 500.
    """
    if isinstance(error, OutcomeUnknown):
        return falcon.HTTPServiceUnavailable(
            title="Outcome Unknown",
            description="The connection to the data store broke before it confirmed. What was asked for may have been "
            "done: look before you ask again.",
        )
    if isinstance(error, (Busy, Unavailable, SetupError)):
        return falcon.HTTPServiceUnavailable(
            title="Service Unavailable",
            description="The data store does not answer at the moment. Try again in a few seconds.",
            retry_after=RETRY_AFTER,
        )
    if isinstance(error, Duplicate):
        return falcon.HTTPConflict(title="Conflict", description="A record with the same unique value exists already.")
    return falcon.HTTPInternalServerError(
        title="Internal Server Error", description="Something went wrong on our side."
    )
