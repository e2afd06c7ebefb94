"""The status of an operator from its life; from the log while the machine recovers, and after its life is over.

Any thread may ask, while the loop works on: each number is right at some moment, not all at the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from logline.engine.clock import marks_key
from logline.engine.image import SetCounts
from logline.engine.machine import Machine
from logline.engine.operating import OperatorMachine
from logline.engine.reading import SourceMachine
from logline.engine.step import Step
from logline.engine.writing import Writes
from logline.names import ERRORS, LATE, Ssn, TargetName
from logline.runtime.lives.calls import SetCalls
from logline.runtime.lives.driver import LifeDriver
from logline.runtime.lives.life import Life
from logline.runtime.status import OperatorStatus, TargetStatus, lag_behind, logged_status, shown_time
from logline.store.seam import Store

SOME = 3
"""Sets that a wait names."""


def operator_status(driver: LifeDriver[Life], store: Store, known: OperatorStatus) -> OperatorStatus:
    """`known` with the numbers of this moment. Called by any thread."""
    machine, spec, phases = driver.machine, driver.life.spec, driver.life.phases
    if phases is not None and phases.keys is not None:
        known = replace(known, keys=len(phases.keys))
    if driver.over is not None:
        return logged_status(store, spec, known.without_life())
    if machine.phase in ("new", "claiming"):
        return logged_status(store, spec, known)
    if isinstance(machine, OperatorMachine):
        positions = {name: channel.position for name, channel in machine.inbox.channels.items()}
        answered, rows = _rows(driver, machine)
        clock = phases.clock if phases is not None else None
        watermarks = {} if clock is None else clock.image()
        told = sum(watermarks.get(marks_key(name), 0) for name in positions)
        known = replace(
            known,
            taken=max(sum(at.ssn - at.marks for at in positions.values()) - told - spec.passed, 0),
            lag=lag_behind(store, spec.inputs, positions, watermarks),
            in_flight=machine.in_flight,
            rows=rows,
            rows_answered=answered,
            targets={str(target): _target(driver, machine.writes, target) for target in spec.targets},
        )
    marks = machine.outbox.marks
    time = machine.port_time
    told_on = {} if time is None else time.marks
    last = {port: machine.outbox.heads[port].last - marks - told_on.get(port, 0) for port in spec.ports}
    retried = _errors_retried(machine)
    ending = machine.draining or machine.stopping
    # Members are counted by the journal: a recovery would begin with what is logged, and sets may be many.
    sets = 0 if phases is None else len(phases.sets)
    logged = store.read(spec.name).count_sets() if sets and not spec.stateless else SetCounts()
    return replace(
        known,
        out=sum(last.values()),
        watermark="" if time is None else shown_time(time.shown),
        open_sets=sets,
        checkpoints=logged.checkpoints,
        replay=logged.replay,
        extent=machine.checkpointing.extent if isinstance(machine, OperatorMachine) else 0,
        calls=driver.life.calls_in_flight,
        errors=max(machine.outbox.unsettled_errors - len(retried), 0),
        errors_retried=len(retried),
        errors_ever=last.get(ERRORS, 0),
        late=last.get(LATE, 0),
        waits="; ".join(_waits(driver, machine)) if ending and not driver.quiet() else "",
    )


def _errors_retried(machine: Machine) -> set[Ssn]:
    """Until it is durable that they are settled."""
    if not isinstance(machine, OperatorMachine):
        return set()
    steps = (machine.sealing.step, machine.commits.pending, machine.commits.flying)
    logged = (ssn for step in steps if step is not None for ssn in list(Step.errors.peek(step).resolved))
    return {*machine.generation.sets.retried(), *logged}


def _target(driver: LifeDriver[Life], writes: Writes, target: TargetName) -> TargetStatus:
    queue = writes.queues[target]
    done = max(queue.done, driver.life.applied.get(target, 0))
    return TargetStatus(done, max(queue.logged, queue.last, done) - done)


def _rows(driver: LifeDriver[Life], machine: OperatorMachine) -> tuple[int, int]:
    """Of the events in generation: the rows that are answered, and all rows."""
    answered = rows = 0
    for due in machine.generation.sets.at_work():
        calls, count = _calls_of(driver, due.serial)
        known = None if calls is None else calls.rows_answered()
        if known is not None:
            answered, rows = answered + known, rows + max(count, known)
    return answered, rows


def _calls_of(driver: LifeDriver[Life], serial: int) -> tuple[SetCalls | None, int]:
    """The calls of a set, and how many rows it has if it is one event."""
    known = None if driver.life.phases is None else driver.life.phases.sets.get(serial)  # type: ignore[call-overload]
    if known is None:
        return None, 0
    return known.calls, known.came.rows if known.came is not None else getattr(known.acc, "num_rows", 0)


# ---- why it is not done yet ---------------------------------------------------------------------------


def _waits(driver: LifeDriver[Life], machine: Machine) -> Iterator[str]:
    """What has to happen before this life is quiet, the outermost thing first."""
    if machine.phase == "recovering":
        yield "it recovers"
    if isinstance(machine, OperatorMachine):
        yield from _unwritten(driver, machine.writes)
        yield from _at_work(driver, machine)
        if machine.inbox.waiting:
            yield "events that it has read are not taken yet"
    if isinstance(machine, SourceMachine):
        for partition in machine.unconfirmed():
            yield f"what was read of partition {str(partition)!r} is not confirmed yet"
    if machine.outbox.blocked():
        yield "its receivers are behind, and its output waits for them"
    if machine.commits.flying is not None:
        yield "a commit is on its way into the log"


def _unwritten(driver: LifeDriver[Life], writes: Writes) -> Iterator[str]:
    for target, queue in writes.queues.items():
        name, pending = repr(str(target)), _target(driver, writes, target).pending
        if not queue.located:
            yield f"target {name} has not said what it has" + (
                f" ({queue.tries} tries failed)" if queue.tries else ""
            )
        elif pending:
            text = (
                f"{pending:,} write{'s'[: pending != 1]} to target {name} {'are' if pending != 1 else 'is'} not done"
            )
            failed = f": write {queue.done + 1:,} failed {queue.tries} times and is tried again"
            yield text + (failed if queue.tries else "")


def _at_work(driver: LifeDriver[Life], machine: OperatorMachine) -> Iterator[str]:
    sets = machine.generation.sets.at_work()
    for due in sets[:SOME]:
        name = driver.life.set_name(due.serial) or str(due.serial)
        if due.state == "retrying":
            yield f"input set {name} failed {due.tries} times and is tried again"
        elif due.state == "queued":
            yield f"input set {name} is due"
        else:
            yield f"input set {name} is in generation" + _asking(driver, due.serial)
    if len(sets) > SOME:
        yield f"{len(sets) - SOME:,} more sets"


def _asking(driver: LifeDriver[Life], serial: int) -> str:
    """The calls of the set that have no answer yet."""
    calls, rows = _calls_of(driver, serial)
    asked = {} if calls is None else calls.unanswered()
    if calls is None or not asked:
        return ""
    (row, _), fn = next(iter(asked.items()))
    answered = calls.rows_answered()
    if answered is not None:
        return f", {answered:,} of {rows:,} rows answered, {fn} asked for row {row}"
    return f" and waits for an answer of {fn}"
