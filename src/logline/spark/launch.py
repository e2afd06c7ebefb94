"""Starts a pipeline on Spark: chooses the session, counts its slots, and gives each group a host."""

from __future__ import annotations

import logging
import shutil
import signal
import tempfile
import threading
import uuid
import weakref
from collections.abc import Mapping
from dataclasses import replace
from types import FrameType
from typing import Any

from pyspark.sql import SparkSession

from logline.errors import LogError, OptionError, a_kind
from logline.graph.groups import Grouping
from logline.graph.model import Graph
from logline.names import InstanceName
from logline.runtime.control import launch
from logline.runtime.control.engine import Engine
from logline.runtime.control.run import Run
from logline.runtime.control.settings import StartSettings
from logline.runtime.control.supervisor import Supervisor
from logline.runtime.hosts.threads import ThreadHost
from logline.runtime.lives.instances import Instance
from logline.runtime.status import AT_WORK
from logline.spark.host import SparkHost
from logline.spark.jvm import alive
from logline.spark.refusals import refuse, refuse_connect
from logline.spark.room import fit
from logline.spark.session import session
from logline.spark.types import session as active_session
from logline.store.address import in_folder, reach_of
from logline.store.seam import Lease, Store

logger = logging.getLogger("logline")


def start(graph: Graph, settings: StartSettings) -> Run:
    """Starts the pipeline on Spark: on the session given, the active one, or one that ends with the run."""
    log, spark = settings.log, settings.spark
    if log is not None and reach_of(log) == "process":
        raise OptionError(
            f"{log!r} is a log in this process, and Spark's tasks are others: use log='lmdb:PATH', or engine='inline'"
        )
    refuse_connect(spark)
    if spark is not None and not isinstance(spark, SparkSession):
        raise OptionError(
            f"spark={spark!r}: expected a SparkSession, not {a_kind(spark)}: "
            "make one with ll.session(master='local[4,100]'), or leave it out"
        )
    given = spark or active_session()
    if given is not None and not alive(given):
        raise OptionError("the Spark session has been stopped: make another one, with ll.session() for example")
    if given is None and launch.has_finished(graph, log, settings.until):
        return launch.start(graph, settings, _nothing_to_run)
    used = given or session(f"logline {graph.name}")
    try:
        refuse(used, log)
        grouping = fit(graph, used)  # what is refused must not touch the log
        folder = None
        if log is None:
            folder = tempfile.mkdtemp(prefix="logline-")
            log = in_folder(folder)
            logger.warning("pipeline %r keeps its log in %s, which is removed when the run ends", graph.name, folder)
        on_spark = _OnSpark(used, grouping, stop=given is None)
        run = launch.start(graph, replace(settings, log=log), on_spark.make)
        if folder is not None:
            weakref.finalize(run.log.store, shutil.rmtree, folder, ignore_errors=True)
    except BaseException:
        if given is None:
            used.stop()
        raise
    if on_spark.made and (address := used.sparkContext.uiWebUrl):
        logger.info("pipeline %r in Spark's UI: %s", graph.name, address)
    if given is None and not on_spark.made:
        used.stop()  # the log has finished meanwhile: there is nothing to run
    _keep_interrupts(run)
    return run


def _nothing_to_run(
    graph: Graph, instances: Mapping[InstanceName, Instance], store: Store, log: str, lease: Lease
) -> Engine:
    raise LogError(
        f"pipeline {graph.name!r} had finished on this log, and somebody has reopened it just now: start it again"
    )


class _OnSpark:
    """Makes the engine of one run."""

    def __init__(self, spark: SparkSession, grouping: Grouping, *, stop: bool) -> None:
        self._spark = spark
        self._grouping = grouping
        self._stop = stop
        self.made = False

    def make(
        self, graph: Graph, instances: Mapping[InstanceName, Instance], store: Store, log: str, lease: Lease
    ) -> Engine:
        """Groups that fit into the slots, each with its host."""
        host = SparkHost(self._spark, store, log, uuid.uuid4().hex[:8])

        def closing() -> None:
            host.close()
            if self._stop:
                host.jvm.stop()

        self.made = True
        groups = launch.on_hosts(self._grouping, instances, host, ThreadHost(store))
        return Supervisor(groups, store, lease, closing, self._spark.sparkContext.uiWebUrl or "")


_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def _keep_interrupts(run: Run) -> None:
    """PySpark cancels every job at a Ctrl-C, ours too. While a pipeline runs it is an exception and nothing else, so
    that the run stops in order."""
    _runs.add(run)
    before: Any = signal.getsignal(signal.SIGINT)
    main = threading.current_thread() is threading.main_thread()
    if not main or not callable(before) or before in (signal.default_int_handler, _interrupt):
        return
    _before.append(before)
    signal.signal(signal.SIGINT, _interrupt)


_before: list[Any] = []


def _interrupt(number: int, frame: FrameType | None) -> None:
    if any(run.status().phase in AT_WORK for run in _runs):
        raise KeyboardInterrupt
    _before[-1](number, frame)
