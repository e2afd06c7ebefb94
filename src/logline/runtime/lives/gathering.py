"""Whether operators gather events for a span of time (`ctx.fire(inset, after=...)`): `rebatch`, blocks with `within`.

A run that ends with what is there lets such sets out when nothing else is left to do, since nothing more comes to
fill them. A timer for a time of the wall clock or of the event clock says when, not how long: it stays for the next
run, and its window open. So does the timer of a key: it says when a key was silent for long enough.
"""

from __future__ import annotations

from collections.abc import Iterable

from logline.engine.keyed import is_key_timer
from logline.names import InstanceName
from logline.store.seam import Journals


def gathers(store: Journals, instances: Iterable[InstanceName]) -> bool:
    """As the log has it: timers are logged with the step that set them (R6), and all are quiet when this is asked."""
    return any(not is_key_timer(inset) for name in instances for inset in store.read(name).gathering())
