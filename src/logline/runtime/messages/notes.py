"""Notes: what a run writes down in the log for whoever looks (`Store.put_status`). A newer one takes its place.

    @driver         DriverNote: the run as a whole, once a second
    NAME            GroupStatus: the group NAME, once per heartbeat
    @openlineage    ExportNote: whether the end of a run still has to be exported
    @story/NAME     StoryNote: what the newest life of the instance NAME heard and did, once a second if it is told

Recovery needs none of them. A note that can't be read counts as none. A power cut may leave one empty or cut off, and
that is nothing to speak of; one that is whole and no note is logged as an error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TypeVar

from logline.runtime.messages.wire import Decoder, Message, NotAMessage
from logline.runtime.status import OperatorStatus, Phase
from logline.store.seam import Store

logger = logging.getLogger("logline")


class DriverNote(Message, frozen=True):
    """What a run knows of itself."""

    run: str
    pid: int
    at: float
    """When it was written, in seconds since 1970."""
    phase: Phase
    error: str
    operators: Mapping[str, OperatorStatus]


class TaskLife(Message, frozen=True):
    """Which life of a group a Spark task hosts."""

    run: str
    life: int
    born: str
    """When its process was started, as the kernel counts: together with the process id a name for it."""
    respawner: tuple[int, str]
    """The process that forked the life, or the life's own: process id and start."""
    began: float
    young: int
    """Lives in a row that died young before this one."""
    place: str = ""
    """Where the process ids above mean something (`spark/turns.py`)."""


class GroupStatus(Message, frozen=True):
    """What the worker of a group knows of it."""

    pid: int
    phase: Phase
    operators: Mapping[str, OperatorStatus]
    quiet: bool
    at: float
    task: TaskLife | None = None


class ExportNote(Message, frozen=True):
    """Of a run that is exported as OpenLineage events."""

    run: str
    operators: list[str]
    open: bool
    """Its end has not been told yet."""


class StoryEntry(Message, frozen=True):
    """One stimulus of a machine, and the actions that it led to."""

    at: int
    """Microseconds since 1970."""
    phase: str
    heard: str
    asked: tuple[str, ...]


class StoryNote(Message, frozen=True):
    """The last entries of a life's story."""

    incarnation: int
    over: str | None
    """How the life ended; None while it lives, and for one that was killed."""
    entries: tuple[StoryEntry, ...]


DRIVER_NOTES = Decoder[DriverNote](DriverNote, "the note of a driver")
GROUP_STATUSES = Decoder[GroupStatus](GroupStatus, "the status of a group")
EXPORT_NOTES = Decoder[ExportNote](ExportNote, "the note of an export")
STORY_NOTES = Decoder[StoryNote](StoryNote, "the story of a life")

T = TypeVar("T")


def read_note(store: Store, name: str, notes: Decoder[T]) -> T | None:
    """The note of that name. None if there is none, or it can't be read."""
    data = store.statuses().get(name)
    if data is None or is_cut_off(data):
        return None
    try:
        return notes.decode(data)
    except NotAMessage as error:
        logger.error("what is written down for %s in the log is %s", name, error)
        return None


def is_cut_off(data: bytes) -> bool:
    """Whether a note is what a power cut may leave of one: nothing, zeros, or its beginning.

    >>> is_cut_off(b""), is_cut_off(bytes(7)), is_cut_off(b'{"kind": "driver_n'), is_cut_off(b"[1]")
    (True, True, True, False)
    """
    try:
        json.loads(data)
    except ValueError:
        return True
    return False
