"""Settings of a session under which a pipeline can't run: refused before anything runs, with what to do.

Spark takes each of them without a word. A pipeline would starve, or die again and again, and nothing would say why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from logline.errors import OptionError
from logline.store.address import reach_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Get = Callable[[str, str], str | None]
"""Reads a setting: `SparkConf.get` or `SparkSession.conf.get`."""


def is_true(get: Get, key: str) -> bool:
    """Whether a setting is switched on, as Spark reads it: in any case, with spaces around it.

    >>> is_true({"spark.speculation": " TRUE"}.get, "spark.speculation")
    True
    """
    return (get(key, "") or "").strip().lower() == "true"


def one_host(master: str | None) -> bool:
    """Whether all its tasks run on this machine: `local`, `local[4]`, `local-cluster[2,2,1024]`."""
    return master is not None and master.startswith("local")


def refuse_connect(spark: object) -> None:
    """Raises an OptionError for a session of Spark Connect: it has the methods of a session, but no context and no
    RDDs, which the job of a group is made of. Its class is known by name: it can't be imported without grpc."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise OptionError(
            "this is a session of Spark Connect (SPARK_REMOTE, or builder.remote(...)), in which a pipeline can't "
            "run: it has no RDDs, and the driver is elsewhere. Run the script where the driver may be, with "
            "spark-submit for example, and make the session with ll.session(master='spark://host:7077')"
        )


def refuse(spark: SparkSession, log: str | None) -> None:
    """Raises an OptionError if a pipeline with that log can't run in this session."""
    get = spark.sparkContext.getConf().get
    in_folder = log is None or reach_of(log) == "host"
    _refuse_hosts(spark.sparkContext.master, in_folder=in_folder)
    if in_folder:
        _refuse_little_address_space(get)
    _refuse_idle_kills(get, spark.conf.get)


def _refuse_hosts(master: str | None, *, in_folder: bool) -> None:
    if in_folder and not one_host(master):
        raise OptionError(
            f"a log in a folder can't be used with master {master!r}, which spans hosts: an operator that is started "
            "again elsewhere would not find it. Keep the log in PostgreSQL, "
            "log='postgresql://user@host/database?log=NAME', or use a master on this machine, "
            "local[N,100] or local-cluster[...]"
        )


def _refuse_little_address_space(get: Get) -> None:
    """Spark limits the address space of a task's process (RLIMIT_AS), and the embedded log maps far more than it
    has in memory."""
    limit = (get("spark.executor.pyspark.memory", "") or "").strip()
    if limit.strip("0bkmgtpiBKMGTPI"):
        raise OptionError(
            f"spark.executor.pyspark.memory={limit} limits the address space of Python processes, and a log in a "
            "folder maps 256 GiB of it for each operator, without using the memory: no operator could open its "
            "journal. Take the setting out"
        )


def _refuse_idle_kills(of_context: Get, of_session: Get) -> None:
    """A task of a pipeline returns nothing until it ends. Spark has the setting twice: for RDDs, and for DataFrames,
    which sources are made of. The second is that of a session and falls back to the first."""
    names = "spark.python.worker.killOnIdleTimeout", "spark.sql.execution.pyspark.udf.killOnIdleTimeout"
    limits = "spark.python.worker.idleTimeoutSeconds", "spark.sql.execution.pyspark.udf.idleTimeoutSeconds"
    for get, name, limit in zip((of_context, of_session), names, limits, strict=True):
        seconds = get(limit, "") or ""
        if is_true(get, name) and any(digit in seconds for digit in "123456789"):
            raise OptionError(
                f"{name} with {limit}={seconds} kills Python workers that return nothing for so long, and the tasks "
                "of a pipeline return nothing until they end. Take one of them out"
            )
