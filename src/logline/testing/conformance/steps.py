"""Hypothesis strategies: valid steps against a model, as the machines would make them.

    step = data.draw(steps(model))      # not numbered; model.apply(step) when it is committed

One instance does everything here that an operator, a source, a writer and a janitor do; a store does not know the
difference. A step is made of parts, put together in the order in which a machine fills its pending step.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from logline.engine.events import Collection, Head, Output, Position
from logline.engine.history import Segment
from logline.engine.keyed import NEVER, KeyState, encode_key
from logline.engine.progress import Progress
from logline.engine.results import Failure, Outcome
from logline.engine.sets import Answer, Checkpoint, Kept, Member, Timer
from logline.engine.spec import write_port
from logline.engine.step import Step
from logline.names import ERRORS, OUT, ChannelName, InsetId, PartitionName, PortName, Serial, Ssn, TargetName
from logline.testing.conformance.model import Model, row

CHANNELS = (ChannelName("orders.out>hourly.in"), ChannelName("refunds/2.late>hourly.in"))
PORTS = (OUT, PortName("late"), ERRORS)
TARGET = TargetName("store")
WRITES = write_port(TARGET)
EFFECT = PortName("effect")
"""The port of reads that are staged."""
STAGED = PartitionName("queue")

_ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")])
# Two times that differ in `fold` alone are equal to Python and not the same: one of the two is enough here.
_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=_ZONES).map(lambda t: t.replace(fold=0))
_ATOMS: st.SearchStrategy[Any] = st.one_of(st.text(max_size=6), st.integers(), _TIMES)
_FEW: list[InsetId] = [
    "BZ234",
    7,
    2**70,
    datetime(2010, 10, 2, 5, tzinfo=UTC),
    datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ("BZ234", 7, datetime(2010, 10, 2, 5, tzinfo=UTC)),
    (),
]
insets: st.SearchStrategy[InsetId] = st.one_of(st.sampled_from(_FEW), _ATOMS, st.lists(_ATOMS, max_size=3).map(tuple))
"""Ids of every kind; a few of them again and again."""
_keys = st.sampled_from([encode_key(key) for key in (("BZ234", None), (7,), (b"",))]) | st.binary(max_size=600)
"""Keys as bytes, of any length."""

notes: st.SearchStrategy[Any] = st.none() | st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.binary(max_size=4), _TIMES
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=2),
    ),
    max_leaves=4,
)
"""What `assign` may attach to a membership."""

_bytes = st.binary(max_size=8)
_progress = st.builds(
    Progress,
    st.integers(1, 5),
    st.sampled_from(["incomplete", "complete", "done"]),
    st.none() | _bytes,
    st.integers(0, 2**40).map(Ssn),
    st.integers(0, 2**40),
    st.booleans(),
    st.lists(_bytes, max_size=3, unique=True).map(tuple),
)

Draw = st.DrawFn
Part = Callable[[Draw, Model, Step], None]


# ---- input sets -------------------------------------------------------------------------------------------------


def _next_serial(model: Model, step: Step) -> Serial:
    return Serial(max(model.image.serial, step.sets.serial) + 1)


def _take(draw: Draw, model: Model, step: Step) -> tuple[ChannelName, Ssn] | None:
    """The next event of some channel; None if that one has ended."""
    channel = draw(st.sampled_from(CHANNELS))
    known = step.positions.get(channel, model.image.positions.get(channel, Position()))
    if known.ended:
        return None
    ended = draw(st.integers(0, 20)) == 20
    nbytes = 0 if ended else draw(st.integers(0, 1000))
    step.positions[channel] = Position(Ssn(known.ssn + 1), known.total + nbytes, int(ended))
    return None if ended else (channel, Ssn(known.ssn + 1))


def _alone(draw: Draw, model: Model, step: Step) -> None:
    """Events that are sets of their own."""
    for _ in range(draw(st.integers(1, 3))):
        event = _take(draw, model, step)
        if event is not None:
            serial = step.sets.serial = _next_serial(model, step)
            step.sets.alone[serial] = Member(*event)


def _open_sets(model: Model, step: Step) -> list[Serial]:
    known = [serial for serial, opened in model.image.sets.items() if opened.cause is None]
    gone = {*step.sets.due, *step.sets.merged}
    return [serial for serial in (*known, *step.sets.opened) if serial not in gone]


def _whole_sets(model: Model, step: Step) -> list[Serial]:
    """Those without a checkpoint: only of these may another set have the members (R22, R32)."""
    sets = model.image.sets
    saved = {*step.sets.checkpoints, *(serial for serial, opened in sets.items() if opened.checkpoint is not None)}
    return [serial for serial in _open_sets(model, step) if serial not in saved]


def _members(model: Model, step: Step, serial: Serial) -> list[Member]:
    """All that has joined an open set so far, in order."""
    known = step.sets.opened.get(serial) or model.image.sets[serial]
    return [*known.members, *step.sets.members.get(serial, ())]


def _take_in(draw: Draw, model: Model, step: Step) -> None:
    """Events that join open sets, or open new ones; in several sets, or in none."""
    for _ in range(draw(st.integers(1, 4))):
        event = _take(draw, model, step)
        if event is None:
            continue
        known = _open_sets(model, step)
        joined = draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []
        for serial in joined:
            step.join(serial, Member(*event, draw(notes)))
        for inset in draw(st.lists(insets, max_size=2)):
            serial = _next_serial(model, step)
            step.open(serial, inset)
            step.join(serial, Member(*event, draw(notes)))


def _merge(draw: Draw, model: Model, step: Step) -> None:
    """Open sets become one: the members of the others move, after its own (R32)."""
    known = _whole_sets(model, step)
    if not known:
        return
    into, *others = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
    for gone in others:
        for member in _members(model, step, gone):
            step.join(into, member)
        step.merge(gone, into)


def _keep(draw: Draw, model: Model, step: Step) -> None:
    """A set becomes due, and another one of its id goes on with its members."""
    for serial in draw(st.lists(st.sampled_from(known), max_size=1)) if (known := _whole_sets(model, step)) else []:
        members = _members(model, step, serial)
        opened = step.sets.opened.get(serial) or model.image.sets[serial]
        step.open(_next_serial(model, step), opened.id, members, Kept(opened.kept.times + 1, len(members)))
        step.sets.due[serial] = "kept"


def _checkpoint(draw: Draw, model: Model, step: Step) -> None:
    """Checkpoints of open sets, which cover some more of their members, or the same (R22)."""
    known = _open_sets(model, step)
    for serial in draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []:
        opened, begun = model.image.sets.get(serial), step.sets.opened.get(serial)
        saved = None if opened is None else opened.checkpoint
        there = 0 if opened is None else opened.count
        there += len(step.sets.members.get(serial, ())) if begun is None else len(begun.members)
        count = draw(st.integers(0 if saved is None else saved.covers, there))
        lows = draw(st.dictionaries(st.sampled_from(CHANNELS), st.integers(1, 9).map(Ssn), max_size=2))
        if saved is not None:  # what was a low stays one
            lows = {**lows, **saved.lows}
        step.sets.checkpoints[serial] = Checkpoint(count, draw(_bytes), draw(st.text(max_size=4)), draw(_bytes), lows)


def _make_due(draw: Draw, model: Model, step: Step) -> None:
    """Some open sets become due, in any order; some of them have failed."""
    known = _open_sets(model, step)
    for serial in draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []:
        step.sets.due[serial] = draw(st.sampled_from(["ready", "fired", "end"]))
        if draw(st.integers(0, 3)) == 0:
            texts = st.text(max_size=10)
            step.sets.failures[serial] = Failure(draw(texts), draw(texts), draw(texts), draw(st.booleans()))


def _due_sets(model: Model, step: Step) -> list[Serial]:
    gone = {*step.sets.done, *step.sets.parked}
    return [serial for serial in (*model.image.due, *step.sets.alone, *step.sets.due) if serial not in gone]


def _answer(draw: Draw, model: Model, step: Step) -> None:
    """Answers of calls made for due sets."""
    known = _due_sets(model, step)
    for serial in draw(st.lists(st.sampled_from(known), max_size=3)) if known else []:
        so_far = len(model.image.answers.get(serial, ())) + len(step.sets.answers.get(serial, ()))
        answer = Answer(serial, draw(st.integers(-1, 2**33)), so_far, "rate", draw(st.text(max_size=4)), draw(_bytes))
        step.sets.answers.setdefault(serial, []).append(answer)


def _generate(draw: Draw, model: Model, step: Step) -> None:
    """Due sets are done; outputs and write actions are made of them."""
    if model.image.ended or step.ended:
        return
    known = _due_sets(model, step)
    for serial in draw(st.lists(st.sampled_from(known), max_size=3, unique=True)) if known else []:
        made = [row.serial for row in _all_rows(model, step)]
        rising = serial > max(made, default=0)
        if rising or not (model.runs or step.lineage.lone):  # with runs the serials on a port rise
            for port in draw(st.lists(st.sampled_from((*PORTS, WRITES)), max_size=3)):
                _put(draw, model, step, port, serial)
        if draw(st.integers(0, 3)) == 0:
            step.sets.dropped[serial] = draw(st.text(max_size=4))
        step.close(serial, traced=draw(st.booleans()), ordered=rising and 0 not in made)


def _all_rows(model: Model, step: Step) -> list[Output]:
    stored = [row for port in PORTS for row in model.rows.get(port, {}).values()]
    return [row for row in (*stored, *step.outputs) if row.port in PORTS]


def _history(draw: Draw, model: Model, step: Step) -> None:
    """What lineage keeps goes into a segment; older ones expire."""
    last = max(model.image.segments, default=0)
    if last and draw(st.booleans()):
        step.lineage.expired = draw(st.integers(0, last))
    if step.lineage.kept or step.lineage.lone or draw(st.booleans()):
        number = max(step.lineage.expired + 1, draw(st.integers(last, last + 1)), 1)
        ports = draw(st.dictionaries(st.sampled_from(PORTS), st.tuples(st.integers(1, 9), st.integers(0, 2**40))))
        lows = draw(st.dictionaries(st.sampled_from(CHANNELS), st.integers(1, 9)))
        began, at = sorted(draw(st.tuples(st.integers(0, 2**50), st.integers(0, 2**50))))
        step.lineage.segment = Segment(number, began, at, ports, lows)  # type: ignore[arg-type]


def _park(draw: Draw, model: Model, step: Step) -> None:
    """Due sets are set aside."""
    known = _due_sets(model, step)
    for serial in draw(st.lists(st.sampled_from(known), max_size=2, unique=True)) if known else []:
        step.park(serial)


def _settle(draw: Draw, model: Model, step: Step) -> None:
    """Sets that were set aside are retried (a new set, due) or dropped; a commit of its own, shared with nothing."""
    aside = [serial for serial, opened in model.image.sets.items() if opened.cause == "parked"]
    for serial in draw(st.lists(st.sampled_from(aside), max_size=2, unique=True)) if aside else []:
        step.sets.done.append(serial)
        if draw(st.booleans()):
            again = _next_serial(model, step)
            step.open(again, model.image.sets[serial].id, model.image.sets[serial].members)
            step.sets.due[again] = "fired"
            if model.image.sets[serial].checkpoint is not None:
                step.sets.inherits[again] = serial
    unresolved = [ssn for ssn in model.rows.get(ERRORS, ()) if ssn not in model.image.resolved]
    if unresolved:
        ssns = st.sampled_from(unresolved)
        step.errors.resolved |= draw(st.dictionaries(ssns, st.sampled_from(get_args(Outcome)), max_size=2))
        waiting = [ssn for ssn in unresolved if ssn not in step.errors.resolved]
        for ssn in draw(st.lists(st.sampled_from(waiting), max_size=1)) if waiting else []:
            step.errors.retrying[ssn] = Serial(draw(st.integers(1, 9)))


# ---- outputs ----------------------------------------------------------------------------------------------------


def _last(model: Model, step: Step, port: PortName) -> tuple[Ssn, int]:
    """Where the port is: SSN and total."""
    for output in reversed(step.outputs):
        if output.port == port:
            return output.ssn, output.total
    head = model.image.heads.get(port, Head())
    return step.reads.reveal.get(port, (head.last, head.total))


def _put(draw: Draw, model: Model, step: Step, port: PortName, serial: int = 0) -> None:
    last, total = _last(model, step, port)
    nbytes = draw(st.integers(0, 1000))
    step.outputs.append(row(port, last + 1, total + nbytes, nbytes, serial=serial))


def _emit(draw: Draw, model: Model, step: Step) -> None:
    """Outputs of no set, as a source has them."""
    if not (model.runs or step.lineage.lone or model.image.ended or step.ended):
        for port in draw(st.lists(st.sampled_from(PORTS), min_size=1, max_size=4)):
            _put(draw, model, step, port)


def _end(draw: Draw, model: Model, step: Step) -> None:
    """The end, or the departure after it (R11), or that the end is taken back (R11')."""
    if model.image.ended:
        if draw(st.integers(0, 2)) == 0:
            _reopen(model, step)
        else:
            step.left = True
    elif draw(st.integers(0, 2)) == 0:
        step.ended = True
        for port in PORTS:
            last, total = _last(model, step, port)
            step.outputs.append(Output(port, Ssn(last + 1), None, 0, 0, total, Serial(0), "end"))


def _reopen(model: Model, step: Step) -> None:
    """Takes the end back. The instance is there again, if it had left."""
    step.reopened = True
    for port in PORTS:
        last, total = _last(model, step, port)
        step.outputs.append(Output(port, Ssn(last + 1), None, 0, 0, total, Serial(0), "reopened"))


def _stage(draw: Draw, model: Model, step: Step) -> None:
    """A read that is not replayable: staged, perhaps anew, then complete, then shown bit by bit (R9)."""
    known = model.image.reads.get(STAGED, Progress())
    waiting = model.staged.get(EFFECT, [])
    if known.status == "complete":
        shown = draw(st.integers(1, len(waiting)))
        step.reads.reveal[EFFECT] = (waiting[shown - 1].ssn, waiting[shown - 1].total)
        if shown == len(waiting):
            step.reads.progress[STAGED] = known._replace(status="done")
        return
    if known.status == "done":
        known = Progress(known.action + 1, offset=known.offset)
    head = model.image.heads.get(EFFECT, Head())
    last, total = head.last, head.total
    on = draw(st.booleans())
    if waiting and on:  # the same life reads on; otherwise another one reads anew
        last, total = waiting[-1].ssn, waiting[-1].total
    for _ in range(draw(st.integers(1, 4))):
        nbytes = draw(st.integers(0, 1000))
        last, total = Ssn(last + 1), total + nbytes
        step.reads.staged.append(row(EFFECT, last, total, nbytes))
    if draw(st.booleans()):
        known = known._replace(status="complete", offset=draw(_bytes), until=last, until_total=total)
    step.reads.progress[STAGED] = known


# ---- the rest of the image ----------------------------------------------------------------------------------------


def _times(draw: Draw, model: Model, step: Step) -> None:
    """Global state, clock, timers."""
    if draw(st.booleans()):
        step.state = draw(_bytes)
    instants = st.integers(-(2**50), 2**50)
    step.clock = draw(st.dictionaries(st.sampled_from((*CHANNELS, ChannelName(""))), instants, max_size=2))
    timers = st.builds(Timer, instants, st.sampled_from(["event", "wall"]), st.integers(0, 2**50))
    step.timers = draw(st.dictionaries(insets, st.none() | timers, max_size=3))
    states = st.builds(KeyState, _bytes, st.just(NEVER) | instants)
    step.keyed = draw(st.dictionaries(_keys, st.none() | states, max_size=3))


def _progresses(draw: Draw, model: Model, step: Step) -> None:
    """Reads that are replayable or destructive, and writes that are done."""
    step.reads.progress.update(
        draw(st.dictionaries(st.sampled_from([PartitionName("0"), PartitionName("a/b.csv")]), _progress))
    )
    last = model.image.heads.get(WRITES, Head()).last
    done = model.image.written.get(TARGET, 0)
    if last > done:
        step.writes.written[TARGET] = draw(st.integers(done, last))


def _collect(draw: Draw, model: Model, step: Step) -> None:
    """What nobody needs goes, with holes (R12)."""
    ports = list(model.image.heads)
    for port in draw(st.lists(st.sampled_from(ports), max_size=2, unique=True)) if ports else []:
        head = model.image.heads[port]
        base = Ssn(draw(st.integers(head.base, head.last + 1)))
        below = [ssn for ssn in model.rows.get(port, ()) if ssn < base]
        pinned = draw(st.sets(st.sampled_from(below), max_size=3)) if below else set()
        step.collected[port] = Collection(base, frozenset(pinned))
    for channel, position in model.image.positions.items():
        if draw(st.booleans()):
            step.forget[channel] = Ssn(draw(st.integers(model.forgotten.get(channel, 1), position.ssn + 1)))


_PARTS: tuple[Part, ...] = (
    _alone,
    _take_in,
    _merge,
    _keep,
    _checkpoint,
    _make_due,
    _answer,
    _park,
    _settle,
    _generate,
    _emit,
    _stage,
    _times,
    _progresses,
    _collect,
    _end,
)


@st.composite
def steps(draw: Draw, model: Model, *, stateless: bool | None = None) -> Step:
    """A step that is valid after what the model holds; without a number.

    An instance has sets of one event or sets with ids. None: both at once, since no store can tell the difference.
    """
    step = Step()
    if model.image.left:
        _collect(draw, model, step)  # all that is done for one that has left
        step.lineage.expired = draw(st.integers(0, max(model.image.segments, default=0)))
        return step
    others = {True: (_take_in, _merge, _keep, _settle), False: (_alone, _settle), None: ()}[stateless]
    parts = [part for part in _PARTS if part not in others]
    chosen = draw(st.sets(st.integers(0, len(parts) - 1), min_size=1, max_size=6))
    for index in sorted(chosen):
        parts[index](draw, model, step)
    _history(draw, model, step)
    return step
