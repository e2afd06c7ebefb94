"""How many slots of a session a pipeline takes, and how many stay free for other jobs.

A group holds its slot for as long as it lives. If a pipeline took all slots, a job of the user's own beside it would
wait until the pipeline ends, and Spark would say nothing. So a slot is kept free: as many as `ll.session(spare=)` or
the setting `spark.logline.spare` says, otherwise one where the pipeline can do without it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from pyspark.sql import SparkSession

from logline.errors import OptionError
from logline.graph.groups import Grouping, group
from logline.graph.model import Graph
from logline.spark.session import SPARE, check_spare
from logline.spark.slots import cpus, slots
from logline.spark.types import session

logger = logging.getLogger("logline")


@dataclass(frozen=True)
class Room:
    """The slots of a session, as one pipeline may use them."""

    slots: int | None
    """All of them; None if Spark gets as many executors as it needs."""
    spare: int = 0
    """Those that are kept free."""

    @property
    def groups(self) -> int | None:
        """How many groups may have a slot."""
        return None if self.slots is None else self.slots - self.spare


def room_in(spark: SparkSession, graph: Graph) -> Room:
    """The room that a session has for a pipeline. Waits for executors that have not come yet."""
    there = slots(spark)
    return Room(None) if there is None else Room(there, _spare(group(graph, tasks=True), there, _asked(spark)))


def active_room(graph: Graph) -> Room:
    """That of the session of this process; without bounds if it has none."""
    found = session()
    return Room(None) if found is None else room_in(found, graph)


def fit(graph: Graph, spark: SparkSession) -> Grouping:
    """The groups of the graph, as many as the session has room for."""
    room = room_in(spark, graph)
    wanted = group(graph, tasks=True)
    if room.slots is None:
        return wanted
    try:
        found = group(graph, room.groups, tasks=True)
    except OptionError as error:
        need = (wanted.least + room.spare) * cpus(spark)
        kept = f", {room.spare} of them kept free for other jobs" if room.spare else ""
        raise OptionError(
            f"{error}. Spark has {room.slots} slots ({spark.sparkContext.master}){kept}: take at least "
            f"{wanted.least + room.spare}, with ll.session(master='local[{need},100]') or more executor cores"
        ) from error
    if len(found.groups) < len(wanted.groups):
        logger.info(
            "Spark has %d slots for %d operators, so that some share a process: %s",
            room.slots,
            len(graph.nodes),
            ", ".join(found.groups),
        )
    if len(found.groups) + bool(found.on_driver) >= room.slots:
        logger.warning(
            "pipeline %r takes all %d slots of the session: another job in it waits until the pipeline ends. To keep "
            "one free, make the session with more slots, ll.session(slots=%d) say",
            graph.name,
            room.slots,
            room.slots + 1,
        )
    return found


def _asked(spark: SparkSession) -> int | None:
    """What the user wants to be kept free, if they have said so."""
    text = spark.conf.get(SPARE, None)
    return None if text is None else check_spare(text, SPARE)


def _spare(wanted: Grouping, there: int, asked: int | None) -> int:
    """Operators on the driver run Spark jobs of their own, so that they need a slot in any case. By default one is
    kept where it does not force operators into a single process."""
    for_driver = int(bool(wanted.on_driver))
    if asked is not None:
        return max(asked, for_driver)
    enough = there - 1 >= max(wanted.least, min(len(wanted.groups), 2))
    return max(int(enough), for_driver)
