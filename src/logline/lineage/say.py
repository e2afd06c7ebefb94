"""The verdicts of `explain` in words: what happened to the row, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from logline.engine import codec
from logline.engine.clock import WATERMARK
from logline.lineage.crossing import Error, InSet, Receiver
from logline.lineage.rows import Ready, ready_made
from logline.lineage.verdicts import Level, Verdict
from logline.lineage.view import Event, LogView, Port, name_of, port_text
from logline.names import Called, PortName, Ssn

TABLE = PortName("table")
"""The input port of a lookup for the stream that is its table."""
Target = tuple[Called, PortName | None]
"""The port that is asked about; of a sink, which has none, the operator."""
_GAVE_NOTHING: dict[Ready, str] = {
    "Filter": "the condition of this filter is not true for it",
    "CheckRows": 'it breaks a rule of this check_rows, which drops such rows; on_fail="divert" keeps them',
    "MapRows": "the function of map_rows gave None for it",
    "IntervalJoin": "it was joined with nothing: no row of the other side has its keys and is near enough in time",
    "WindowJoin": "it was joined with nothing: no row of the other side has its keys in its window",
    "WholeJoin": "it was joined with nothing: no row of the other side has its keys",
    "Lookup": 'it was looked up in vain: the table had no row with its keys; how="left" keeps such rows',
    "StreamLookup": 'it was looked up in vain: no row with its keys was in the table yet; how="left" keeps such rows',
    "Dedup": "an earlier row had its key, and this dedup passes on the first one",
    "Top": "when it came, there were enough rows of its key that are better",
}
_OF_THE_TABLE = "it is a row of the table: later rows are looked up in it, and nothing comes of it alone"


def target_text(target: Target) -> str:
    """The target as users write it."""
    return f"{target[0]}" if target[1] is None else port_text((target[0], target[1]))


def _unless_running(view: LogView, then: str) -> str:
    return "" if view.store.running() is not None else f"; nothing runs on this log now: {then}"


# ---- on the way -------------------------------------------------------------------------------------------------


def arrived(event: Event, level: Level) -> Verdict:
    """It is at the port."""
    name = name_of(event)
    detail = f"it is in {name}" if level == "row" else f"{name} came of its event; the log does not tell by row"
    return Verdict("arrived", event[0], detail, name, level=level)


def written(sink: Receiver, level: Level) -> Verdict:
    """The sink has written it."""
    return Verdict("arrived", sink.instance, f"{sink.instance!r} has written it to its target", level=level)


def unwritten(sink: Receiver, level: Level) -> Verdict:
    """The sink has taken it and its write is not known to be done."""
    more = _unless_running(sink.view, "run the pipeline, and it is written")
    return Verdict(
        "waiting", sink.instance, f"{sink.instance!r} has taken it; its write is not done{more}", level=level
    )


def unread(receiver: Receiver, event: Event, taken: Ssn, behind: int, level: Level) -> Verdict:
    """The operator has not come to the event."""
    far = f"has taken 1..{taken} of it" if taken else "has taken nothing of it"
    events = "1 event is" if behind == 1 else f"{behind:,} events are"
    more = _unless_running(receiver.view, "run the pipeline, and it goes on")
    detail = f"{receiver.instance!r} has not read {name_of(event)} yet: it {far}, {events} ahead of it{more}"
    return Verdict("unread", receiver.instance, detail, name_of(event), level=level)


def in_open_set(receiver: Receiver, event: Event, known: InSet, level: Level) -> Verdict:
    """It waits with others."""
    inset = receiver.inset_text(event, known)
    detail = f"it is in the input set {inset}, which is open: {_waits_for(receiver, known)}"
    return Verdict("open", receiver.instance, detail, None, inset, level)


def _waits_for(receiver: Receiver, known: InSet) -> str:
    timer = receiver.image.timers.get(known.id) if known.id is not None else None
    if timer is None:
        return "it is generated when the operator has all it waits for, or at the end of its input"
    at = codec.instant(timer.at).astimezone(UTC).isoformat()
    if timer.clock != "event":
        return f"it is generated at {at} at the latest" + _unless_running(receiver.view, "run the pipeline")
    watermark = receiver.image.clock.get(WATERMARK)
    far = "there is none yet" if watermark is None else f"it is at {codec.watermark_instant(watermark).isoformat()}"
    return (
        f"it is generated when the watermark reaches {at}, and {far}; later rows move it, "
        'the end of the input or a run with until="now", close=True closes the set'
    )


def due(receiver: Receiver, event: Event, known: InSet, level: Level) -> Verdict:
    """Its set is closed and not generated."""
    inset = receiver.inset_text(event, known)
    answers = len({answer.row for answer in receiver.image.answers.get(known.serial, ())})
    so_far = f", {answers:,} answers so far" if answers else ""
    more = _unless_running(receiver.view, "run the pipeline, and it is")
    detail = f"its input set {inset} is due and not generated yet{so_far}{more}"
    return Verdict("waiting", receiver.instance, detail, None, inset, level)


def dropped(receiver: Receiver, event: Event, known: InSet, level: Level) -> Verdict:
    """Its set failed, under on_error="drop"."""
    inset = receiver.inset_text(event, known)
    detail = f'its input set {inset} failed and was dropped, as on_error="drop" says: {known.dropped}'
    return Verdict("dropped", receiver.instance, detail, None, inset, level)


def row_dropped(receiver: Receiver, event: Event, level: Level) -> Verdict:
    """The function of map_rows raised for it, under on_error="drop"."""
    detail = (
        'the function of map_rows raised for it and it was dropped, as on_error="drop" says; '
        'with on_error="divert" it would be on port errors, with the reason'
    )
    return Verdict("dropped", receiver.instance, detail, None, name_of(event), level)


def late(receiver: Receiver, event: Event, known: InSet, on: Event | None, timeless: bool, level: Level) -> Verdict:
    """It is on a port `late`."""
    port = known.id[0] if isinstance(known.id, tuple) else "late"
    where = f"{receiver.instance}.{port}" if on is None else name_of(on)
    why = (
        "it has no time" if timeless else "its window had closed when it came; a greater lateness= would wait for it"
    )
    name = None if on is None else name_of(on)
    inset = receiver.inset_text(event, known)
    return Verdict("late", receiver.instance, f"it went to {where}: {why}", name, inset, level)


def diverted(receiver: Receiver, error: Error, level: Level) -> Verdict:
    """It is on port `errors` and waits there."""
    name = name_of(error.event)
    detail = f"it is on {name} ({error.reason}); after a fix: logline errors LOG retry {name}"
    return Verdict("diverted", receiver.instance, detail, name, level=level)


def error_dropped(receiver: Receiver, error: Error, level: Level) -> Verdict:
    """It was on port `errors`, and somebody dropped the error."""
    name = name_of(error.event)
    detail = f"it was on {name} ({error.reason}), and that error was dropped"
    return Verdict("dropped", receiver.instance, detail, name, level=level)


def elsewhere(receiver: Receiver, out: Event, target: Target, level: Level) -> Verdict:
    """It left on another port."""
    detail = f"it went to {name_of(out)}, and no way leads from there to {target_text(target)}"
    return Verdict("elsewhere", receiver.instance, detail, name_of(out), level=level)


def filtered(
    receiver: Receiver, port: PortName, event: Event, made: Sequence[Event], where: str, level: Level
) -> Verdict:
    """Nothing came of it, which came in on this port."""
    names = ", ".join(map(name_of, made[:3])) + (f" and {len(made) - 3} more" if len(made) > 3 else "")
    if level == "event" and made:
        detail = (
            f"{receiver.instance!r} made {names} of {name_of(event)}, and no row there has {where}. The log does not "
            f"tell what came of each row: declare depends= on {receiver.instance!r} to know"
        )
    elif level == "row" and ready_made(receiver.operator) == "StreamLookup" and port == TABLE:
        detail = _OF_THE_TABLE
    elif level == "row" and ready_made(receiver.operator) in _GAVE_NOTHING:
        detail = _GAVE_NOTHING[ready_made(receiver.operator)]
    elif made:
        detail = f"{receiver.instance!r} made {names} of {name_of(event)}, and no row there came of this one"
    else:
        detail = f"{receiver.instance!r} made nothing of {name_of(event)}"
    return Verdict("filtered", receiver.instance, detail, None, None, level)


def untraced(receiver: Receiver, event: Event, target: Target, level: Level) -> Verdict:
    """It was taken, and what came of it is not captured."""
    detail = (
        f"{receiver.instance!r} has taken {name_of(event)}; what it made of it is not captured: "
        f"{_advice((event[0], event[1]), target)}"
    )
    return Verdict("untraced", receiver.instance, detail, level=level)


def forgotten(receiver: Receiver, event: Event, out: Event | None, level: Level) -> Verdict:
    """What came of it is collected."""
    what = "what it made of it" if out is None else name_of(out)
    detail = (
        f"{receiver.instance!r} has taken {name_of(event)}, and {what} is collected: that is beyond what the lineage "
        "scope keeps; give it a longer keep="
    )
    return Verdict("collected", receiver.instance, detail, None if out is None else name_of(out), level=level)


def _advice(start: Port, target: Target) -> str:
    ends = "" if target[1] is None else f", {target_text(target)!r}"
    return f"with p.lineage({port_text(start)!r}{ends}) the next run captures it"


# ---- at the source ----------------------------------------------------------------------------------------------


def about_source(view: LogView, port: Port, target: Target, where: str, found: int) -> Iterator[Verdict]:
    """What is to be said of a source beside its rows: that some are collected, or that none was found."""
    reader = view.reader(port[0])
    image = reader.outline()
    stored = [event[2] for event in view.events(port_text(port))]
    last = image.put_out(port[1])
    name = port_text(port)
    if len(stored) < last:
        holds = f"holds {_span(stored)} of {name}:1..{last}" if stored else f"has none of {name}:1..{last} any more"
        kept = any(view.traced_in(channel.name) for channel in view.receivers(port))
        advice = "its lineage scope keeps no more; give it a longer keep=" if kept else _advice(port, target)
        detail = f"the log {holds}; what was in the others is not known: {advice}"
        yield Verdict("collected", port[0], detail, level="event")
    elif not found:
        read = f"in {name}:1..{last}" if last else f"there: {name} has put out nothing yet"
        if image.ended:
            rest = f"and {name!r} has ended: it was not in the input, or the condition is another one"
        else:
            rest = "so it has not been read yet, or the condition is another one" + _unless_running(
                view, "run the pipeline, and it reads what is new"
            )
        yield Verdict("unread", port[0], f"no row with {where} is {read}, {rest}", level="event")


def _span(stored: Sequence[Ssn]) -> str:
    whole = len(stored) == stored[-1] - stored[0] + 1
    return f"{stored[0]}..{stored[-1]}" if whole else f"{len(stored):,} events between {stored[0]} and {stored[-1]}"
