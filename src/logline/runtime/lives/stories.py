"""Stories of lives: a loop writes them into the log once a second; `logline show LOG OPERATOR --story` reads them.

A story is what a machine heard and asked for lately (`engine/story.py`). It is off unless LOGLINE_STORY says how many
entries each life keeps:

    LOGLINE_STORY=200 logline run sales.py --log sales.log
    logline show sales.log hourly --story

What a killed process did in its last second is not in it: a story is for debugging, and no part of recovery.
"""

from __future__ import annotations

import os

from logline.engine.machine import Machine
from logline.errors import OptionError
from logline.names import InstanceName
from logline.runtime.messages.notes import STORY_NOTES, StoryEntry, StoryNote, read_note
from logline.runtime.messages.wire import encode
from logline.store.seam import Store

VARIABLE = "LOGLINE_STORY"


def story_length() -> int:
    """How many entries each life of a run keeps, as the environment says; 0 for none."""
    text = os.environ.get(VARIABLE, "").strip() or "0"
    if not text.isdigit():
        raise OptionError(f"{VARIABLE}={text!r} is not a number of entries: write {VARIABLE}=200, or leave it out")
    return int(text)


def write_story(store: Store, instance: InstanceName, machine: Machine, over: str | None) -> None:
    """Writes down the story of a life, if it keeps one."""
    story = machine.story
    if story is not None:
        entries = tuple(StoryEntry(*entry) for entry in story.entries)
        store.put_status(_name(instance), encode(StoryNote(machine.incarnation, over, entries)))


def read_story(store: Store, instance: InstanceName) -> StoryNote | None:
    """The story of the instance's newest life; None if no life kept one."""
    return read_note(store, _name(instance), STORY_NOTES)


def _name(instance: InstanceName) -> str:
    return f"@story/{instance}"
