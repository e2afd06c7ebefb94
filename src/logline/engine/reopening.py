"""The end of a stream is taken back: an instance that has ended goes on (R11'). One step, made under a claim.

Whoever holds the run's lease reopens an instance, and then all that is downstream of it, in the order of the graph:

    orders: ... end               ->  orders: ... end reopened        receivers see end, reopened, events, end
    hourly: left, has taken the end   hourly: there again; its next life looks behind the end and finds the mark

What is downstream is claimed after the mark is durable. So a life that began before can't end any more, and one
that begins later finds the mark: an end counts only once a look behind it has found nothing (`engine/inbox.py`). A
receiver that has left has taken everything up to the end and needs all that comes after it (R12), so nothing is
collected in between. If the holder of the lease dies half way, the log itself says what is left to do:
`must_reopen`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from logline.engine.events import Output, Position
from logline.engine.image import Image, Outline
from logline.engine.spec import InstanceSpec
from logline.engine.step import Step
from logline.names import ERRORS, ChannelName, PartitionName, Serial, Ssn


def reopen_step(image: Image, spec: InstanceSpec) -> Step:
    """Takes the end back; an empty step if it was not given. Partitions that may have more are read on, also those of
    a source that died before it gave its own end."""
    step = Step()
    for partition in _growing(image, spec):
        known = image.reads[partition]
        status = "incomplete" if spec.replayable else known.status
        step.reads.progress[partition] = known._replace(ended=False, status=status)
    if not image.ended:
        return step
    step.reopened = True
    for port in spec.ports:
        head = image.head(port)
        step.outputs.append(Output(port, Ssn(head.last + 1), None, 0, 0, head.total, Serial(0), "reopened"))
    if ERRORS in spec.ports:  # neither mark waits for somebody to retry or drop it
        last = image.head(ERRORS).last
        step.errors.resolved |= {last: "mark", Ssn(last + 1): "mark"}
    return step


def _growing(image: Image, spec: InstanceSpec) -> Iterable[PartitionName]:
    """The partitions whose end is logged, and that may have more by now."""
    return [name for name, known in image.reads.items() if known.ended and spec.grows]


def must_reopen(image: Outline, spec: InstanceSpec, heads: Mapping[ChannelName, Ssn]) -> bool:
    """Whether it has ended, and a sender has put out more than it had taken then, or has come since and not ended
    (R14). `heads`: the last event of each channel into it."""
    taken = [(image.positions.get(c.name, Position()), heads[c.name]) for c in spec.inputs]
    return image.ended and any(head > at.ssn or not at.ended for at, head in taken)
