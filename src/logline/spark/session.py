"""A Spark session with the settings that pipelines want; `docs/spark.md` has them in a table, with their reasons.

A session made elsewhere works too. What it lacks costs time at a restart, never correctness.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from logline.errors import OptionError
from logline.spark.archive import Archive
from logline.spark.refusals import one_host

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger("logline")
RETRIES = 100
"""How often Spark brings a task back within one job. Each crash of an operator takes one."""
PLACES = 16
"""Slots beyond the number of cores: a slot is a place for an operator, which mostly waits, and no core."""
SPARE = "spark.logline.spare"
"""The setting of a session that says how many of its slots pipelines leave free."""
JOBS = "logline-"
"""How the group of each Spark job begins that is Logline's own."""
PYTHON = "spark.pyspark.python"
DAEMON = "logline.spark.daemon"
FAR = {
    "spark.executor.heartbeatInterval": "5s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "30000",
    "spark.network.timeoutInterval": "5s",
}
"""With a master that spans hosts: an executor is lost after 30 seconds of silence, not after two or three minutes."""
_NOISE = (
    "WARNING: Using incubator modules",
    "Using Spark's default log4j profile",
    "Setting default log level to",
    "To adjust logging level use",
)


def session(
    app: str | None = None,
    *,
    master: str | None = None,
    slots: Any = None,
    spare: Any = None,
    **conf: Any,
) -> SparkSession:
    """A session for pipelines: warm Python workers, retries, a quiet console. The active one, if there is one.

    Other settings are Spark's own, by their names: `ll.session(**{"spark.driver.memory": "4g"})`. `master` is
    `local[N,100]` with room for 16 operators if it is not given; after `local[` and a comma stands how often Spark
    itself brings a task back. `slots` is short for such a master with so many places. A pipeline leaves `spare` of
    them free for other jobs; one, if that is not given and the pipeline can do without it. Both are whole numbers.

        spark = ll.session("sales")
        pipeline.run("lmdb:sales.log", spark=spark)
    """
    check_pyspark()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from logline.spark.types import session as active_session

    if slots is not None:
        if master is not None:
            raise OptionError(f"master={master!r} says how many slots there are: leave slots= out, or master=")
        master = f"local[{_count(slots, 'slots', 1)},{RETRIES}]"
    if spare is not None:
        conf[SPARE] = check_spare(spare, "spare")
    found = active_session()
    if found is not None:
        if spare is not None:
            found.conf.set(SPARE, conf[SPARE])
        logger.info("there is a Spark session already, with its own settings: it is used")
        return found
    check_java()
    cores = os.cpu_count() or 1
    submitted = _submitted()
    submitted_to, submitted_as = (submitted.pop(name, None) for name in ("spark.master", "spark.app.name"))
    master = master or submitted_to or f"local[{cores + PLACES},{RETRIES}]"
    app = app or submitted_as
    archive = Archive(_cache())
    ours = _settings(app or "logline", master, cores, archive.options())
    if _has_logline(master, str(conf.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable)):
        ours["spark.python.daemon.module"] = DAEMON
    if conf.get(PYTHON) is None and one_host(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the default is whatever python3 is on the path
    builder = SparkSession.builder.master(master)
    for key, value in {**ours, **submitted, **{key: _text(value) for key, value in conf.items()}}.items():
        builder = builder.config(key, value)
    with _quiet():
        try:
            made = builder.getOrCreate()
            threading.Thread(target=_warm_up, args=(made,), name="logline-warm-up", daemon=True).start()
            return made
        except PySparkException as error:
            if not archive.usable() or error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise OptionError(f"Spark does not start with master {master!r}: {error}") from error
    archive.drop()  # whatever the reason is: it shall not be this one
    return session(app, master=master, **conf)


def _submitted() -> dict[str, str]:
    """The settings that `spark-submit` was given. Its JVM is there before this process, and knows them."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    known: Any = SparkContext
    known._ensure_initialized()
    return dict(SparkConf().getAll())


def _warm_up(spark: SparkSession) -> None:
    """A job that does nothing: the Python daemon is there, and what the JVM needs for a job, when the first pipeline
    comes."""
    with contextlib.suppress(Exception):  # the session may be stopped meanwhile
        context = spark.sparkContext
        context.setJobGroup(f"{JOBS}warm-up", "logline: warm-up")
        nothing: Any = context.parallelize([0], 1).mapPartitions(lambda records: records)
        with own_python(context):
            task = nothing._jrdd  # it is here that PySpark makes a task of it
        task.count()


def python_of(context: SparkContext) -> str:
    """The Python of a session's workers: the one that the user chose, else the one that runs here. Spark itself looks
    at its own setting only in `spark-submit`, and takes `python3` by default."""
    if chosen := context.getConf().get(PYTHON):
        return chosen
    ours = "PYSPARK_PYTHON" not in os.environ and one_host(context.master)
    return sys.executable if ours else str(context.pythonExec)


@contextlib.contextmanager
def own_python(context: SparkContext) -> Iterator[None]:
    """PySpark takes the Python of what is made in the block from its context: here, the one that has Logline. Outside
    of an activated environment it would be whatever `python3` is on the path."""
    with _python_turn:
        before, context.pythonExec = context.pythonExec, python_of(context)
        try:
            yield
        finally:
            context.pythonExec = before


_python_turn = threading.RLock()


def _has_logline(master: str, python: str) -> bool:
    """Whether the workers of a session surely have Logline: those on this machine that run this very Python. Of a
    cluster, or of another Python, only its user can know."""
    return one_host(master) and shutil.which(python) == shutil.which(sys.executable)


def register(spark: SparkSession) -> None:
    """Makes `spark.read.format("logline")` known to a session; once more does no harm.

    Not part of `session`: Spark starts a Python process for it, which takes seconds.
    """
    from logline.spark import datasource

    datasource.register(spark)


def check_spare(value: object, name: str) -> int:
    """The number of slots to keep free; an OptionError if it is none."""
    return _count(value, name, 0)


def _count(value: object, name: str, least: int) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not text.isdecimal() or int(text) < least:
        raise OptionError(f"{name}={value!r}: expected a number of slots, {least} or more")
    return int(text)


def _settings(app: str, master: str, cores: int, java: str) -> dict[str, str]:
    settings = {
        "spark.app.name": app,
        "spark.task.maxFailures": str(RETRIES),
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.port.maxRetries": "100",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')} "
            f"-Dlogline.spark.log={_cache() / 'spark.log'} -XX:+ExitOnOutOfMemoryError {java}"
        ).strip(),
    }
    if not one_host(master):
        settings |= FAR
    else:
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        if "PYTHONPATH" in os.environ:
            settings["spark.executorEnv.PYTHONPATH"] = os.environ["PYTHONPATH"]
    return settings


def _cache() -> Path:
    """A folder for what may be lost. In a container there may be no home, or none that can be written."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "logline"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):
        pass
    folder = Path(tempfile.gettempdir()) / f"logline-cache-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_pyspark() -> None:
    """Raises if there is no PySpark: it is an extra."""
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise OptionError(
            "Spark needs PySpark, and it is not installed: pip install 'logline[spark]'. "
            "engine='processes' and engine='inline' run without it"
        ) from error


def check_java() -> None:
    """Raises if there is no Java; PySpark would say it in forty lines."""
    home = os.environ.get("JAVA_HOME")
    if (home and (Path(home) / "bin" / "java").exists()) or shutil.which("java"):
        return
    raise OptionError(
        "Spark needs Java 17 or newer, and there is none: install one or set JAVA_HOME. "
        "engine='processes' and engine='inline' run without it"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the JVM says to the console while it starts is dropped where it is known to be noise; the rest, also what
    operators print later, is passed on."""
    try:
        sys.stderr.flush()
        console = os.dup(2)
    except OSError:
        yield  # there is no console
        return
    end, begin = os.pipe()
    os.dup2(begin, 2)
    os.close(begin)
    threading.Thread(target=_pass_on, args=(end, os.dup(console)), name="logline-console", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(console, 2)
        os.close(console)


def _pass_on(end: int, console: int) -> None:
    with open(end, "rb") as lines, contextlib.suppress(OSError):
        for line in lines:
            if not line.startswith(tuple(text.encode() for text in _NOISE)):
                os.write(console, line)
    os.close(console)
