"""What becomes of an event on port `errors`: retried, or dropped (R12). One step, made under a claim of the journal.

A diverted set is parked: it stays in the image with its members, so that they are not collected, and its event on
port `errors` bears its serial. Retrying it opens a new set with the same members, due at once (R6, R7), and closes
the old one. Rejected rows are in the event itself: retrying them opens a set with that event as its only member.
Either way the event is resolved when the new set is done. A retry is one step (R1), and asking twice changes nothing:
the second one finds the event resolved, or on its way. User code is not needed here: the next life rebuilds the set
and generates it, as after any crash (R5).

Somebody may put rows in the place of those that failed. The same step then puts them on port `errors`, as an event
that was made of no set, and opens a set of both events, the error and that one. So the rows are logged before they
are used (R1, R2), both events are needed until the set is done (R12), and what comes of the rows leads back to the
error.
"""

from __future__ import annotations

from collections.abc import Sequence

from logline.engine.events import Output
from logline.engine.image import Image
from logline.engine.reopening import reopen_step
from logline.engine.results import Produced
from logline.engine.sets import Answer, Member, carried, own_id, unassigned_id
from logline.engine.spec import InstanceSpec, again_channel
from logline.engine.step import Step
from logline.errors import LogError
from logline.names import ERRORS, InstanceName, Serial, Ssn, event_name


def retry_step(
    image: Image,
    spec: InstanceSpec,
    error: Output,
    name: str | None = None,
    *,
    answers: Sequence[Answer] = (),
    ask: bool = False,
    fixed: Produced | None = None,
) -> Step:
    """Generates the set, or the rejected rows, once more; an empty step if that is under way or done. If the instance
    has ended, the same step takes its end back (R11'). `name` is what users call the error.

    What was answered before is not asked again, unless `ask` says so: the answers of a parked set are in the image,
    those of rejected rows came with their event (`answers`). `fixed`: the rows to take instead, as an event for port
    `errors`."""
    instance = spec.name
    name = name or event_name(instance, ERRORS, error.ssn)
    if _settled_or_on_its_way(image, instance, error):
        return Step()
    step = reopen_step(image, spec)
    serial = Serial(image.serial + 1)
    parked = image.sets.get(error.serial)
    if parked is not None and parked.cause != "parked":
        parked = None
    if parked is not None:
        answers = image.answers.get(error.serial, ())
    if fixed is not None:
        check_takes_rows(spec, name)
        if parked is not None and not parked.members:
            raise LogError(f"the rows of {name} can't be replaced: it came of a timer. Retry it as it is, or drop it")
        _open_fixed(step, image, spec, error, fixed, parked is not None)
    elif parked is not None:
        unassigned = parked.members and parked.checkpoint is None and parked.id == unassigned_id(parked.members[0])
        if unassigned:
            raise LogError(f"{name} can't be retried: assign() failed, so that it is in no input set; drop it")
        step.sets.done.append(error.serial)
        step.open(serial, parked.id, parked.members, parked.kept)
        if parked.checkpoint is not None:
            step.sets.inherits[serial] = error.serial
        step.errors.retrying[error.ssn] = serial
    elif spec.stateless:
        again = Member(again_channel(instance), error.ssn)
        step.open(serial, own_id(again), [again])
    else:
        raise LogError(
            f"{name} can't be retried: its rows were rejected by an operator that gathers events, and the rest of "
            "their input set is done. Read them with `logline show`, or drop it"
        )
    step.sets.due[serial] = "fired"
    if answers and not ask:
        step.sets.answers[serial] = carried(answers, serial)
    return step


def _open_fixed(step: Step, image: Image, spec: InstanceSpec, error: Output, fixed: Produced, parked: bool) -> None:
    """A set of the error and of the rows that somebody gave instead; those come last, and count."""
    head = image.head(ERRORS)
    ssn = Ssn(head.last + 1 + step.reopened)
    total = head.total + fixed.nbytes
    step.outputs.append(Output(ERRORS, ssn, fixed.payload, fixed.rows, fixed.nbytes, total, Serial(0)))
    if parked:
        step.sets.done.append(error.serial)
    again = again_channel(spec.name)
    rows = Member(again, ssn)
    step.open(Serial(image.serial + 1), own_id(rows), [Member(again, error.ssn), rows])


def check_takes_rows(spec: InstanceSpec, name: str) -> None:
    """Raises LogError if rows can't be given in the place of an error's."""
    if not spec.stateless:
        raise LogError(
            f"the rows of {name} can't be replaced: {name.partition('.')[0]!r} gathers events, and takes no rows "
            "by themselves. Retry it as it is, or drop it"
        )


def drop_step(image: Image, instance: InstanceName, error: Output) -> Step:
    """Drops the error; an empty step if that was done before, or if it is on its way again."""
    step = Step()
    if _settled_or_on_its_way(image, instance, error):
        return step
    parked = image.sets.get(error.serial)
    if parked is not None and parked.cause == "parked":
        step.sets.done.append(error.serial)
    step.errors.resolved[error.ssn] = "dropped"
    return step


def on_their_way(image: Image, instance: InstanceName) -> set[Ssn]:
    """The errors that are being retried: their sets, or their rows, are due."""
    again, members = again_channel(instance), (m for opened in image.sets.values() for m in opened.members)
    return {*image.retrying, *(member.ssn for member in members if member.channel == again)}


def _settled_or_on_its_way(image: Image, instance: InstanceName, error: Output) -> bool:
    return error.ssn in image.resolved or error.ssn in on_their_way(image, instance)
