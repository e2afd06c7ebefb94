"""The status of an operator from its life; from the log while the machine recovers, and after its life is over."""

from __future__ import annotations

from dataclasses import replace

from logline.engine.operating import OperatorMachine
from logline.names import ERRORS
from logline.runtime.lives.driver import LifeDriver
from logline.runtime.lives.life import Life
from logline.runtime.status import OperatorStatus, logged_status
from logline.store.seam import Store


def operator_status(driver: LifeDriver[Life], store: Store, known: OperatorStatus) -> OperatorStatus:
    """`known` with the numbers of this moment. Called by any thread."""
    machine, spec, phases = driver.machine, driver.life.spec, driver.life.phases
    if driver.over is not None or machine.phase in ("new", "claiming"):
        return logged_status(store, spec, known)
    taken = lag = flight = 0
    if isinstance(machine, OperatorMachine):
        for channel in spec.inputs:
            at = machine.inbox.channels[channel.name].position
            taken += at.ssn - at.marks
            lag += max(store.read(channel.sender).head(channel.out).last - at.ssn, 0)
        flight = machine.in_flight
    marks = machine.outbox.marks
    last = {port: machine.outbox.heads[port].last - marks for port in spec.ports}
    return replace(
        known,
        taken=taken,
        out=sum(last.values()),
        lag=lag,
        open_sets=len(phases.sets) if phases is not None else 0,
        in_flight=flight,
        errors=machine.outbox.open_errors,
        errors_ever=last.get(ERRORS, 0),
    )
