"""The JVM of a session, as the driver sees it: whether it still answers, and questions that do not wait for ever.

Py4J waits for an answer without end. A JVM that was killed closes its connections, so that a question fails. One
that was stopped, or does nothing but collect garbage, keeps them open and says nothing. So a thread asks the JVM for
a sign of life each second. A JVM that gives none for a minute is *gone*, and the run that needs it fails and says so.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, SQLContext

T = TypeVar("T")
PAUSE = 1.0
"""Seconds between two signs of life."""
PATIENCE = 5.0
"""Seconds that the JVM has to answer a question of which nothing much depends."""
_OUT_OF_MEMORY = (3, 52)
"""Exit codes: of Java with `-XX:+ExitOnOutOfMemoryError`, and of Spark's own handler."""
_MEMORY = ", with more memory for the driver if it ran out of it: ll.session(**{'spark.driver.memory': '4g'})"


class Jvm:
    """Watches the JVM of a session until it is closed."""

    silence = 60.0
    """Seconds without a sign of life after which the JVM is gone: the garbage of a large heap takes a while."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._process = _process_of(spark)
        self._how = ""
        """How it went, once it is gone."""
        self._signs = 0
        self._over = threading.Event()
        for work in (self._ask_for_signs, self._count_silence):
            threading.Thread(target=work, name="logline-jvm", daemon=True).start()

    def close(self) -> None:
        """Ends the watching; waits for nobody."""
        self._over.set()

    def _ask_for_signs(self) -> None:
        while not self._over.is_set():
            if how := _what_is_wrong(self._spark, self._process):
                self._how = self._how or how
                return
            self._signs += 1
            self._over.wait(PAUSE)

    def _count_silence(self) -> None:
        """Counts its own waits, not the time: if the driver itself is stopped for a while, nobody could answer it."""
        seen, silent = 0, 0.0
        while not self._over.wait(PAUSE) and not self._how:
            seen, silent = (seen, silent + PAUSE) if self._signs == seen else (self._signs, 0.0)
            if silent >= self.silence:
                self._how = f"has not answered for {self.silence:.0f} s"

    def gone(self) -> str:
        """What to tell the user if the JVM is gone; empty as long as it is there. Never waits."""
        return _told(self._how) if self._how else ""

    def gone_now(self) -> str:
        """The same after a question has failed: looks at the JVM first, for a few seconds at most."""
        how = self.ask(lambda: _what_is_wrong(self._spark, self._process), "")
        return _told(self._how or how) if self._how or how else ""

    def ask(self, question: Callable[[], T], otherwise: T, patience: float = PATIENCE) -> T:
        """The JVM's answer to a question; `otherwise` if it fails, does not come in time, or the JVM is gone."""
        found: list[T] = []

        def ask() -> None:
            # AttributeError: of a session that was stopped meanwhile, PySpark has no Java object any more.
            with contextlib.suppress(Py4JError, PySparkException, OSError, AttributeError):
                found.append(question())

        if not self._how:
            thread = threading.Thread(target=ask, name="logline-ask", daemon=True)
            thread.start()
            thread.join(patience)
        return found[0] if found else otherwise

    def stop(self) -> None:
        """Stops the session. Kills a JVM that does not answer: nobody else would, and it holds its memory."""

        def stop() -> bool:
            self._spark.stop()
            return True

        if not self.ask(stop, False, self.silence):
            if self._process is not None:
                self._process.kill()
            _forget(self._spark.sparkContext)


def _forget(context: SparkContext) -> None:
    """What is left to do of `SparkSession.stop` without a JVM: PySpark starts another one for the next session."""
    held: Any
    for held, names in (
        (context, ("_jsc",)),
        (SparkContext, ("_active_spark_context", "_gateway", "_jvm")),
        (SparkSession, ("_instantiatedSession", "_activeSession")),
        (SQLContext, ("_instantiatedContext",)),
    ):
        for name in names:
            setattr(held, name, None)


def why_gone(spark: SparkSession) -> str:
    """What to tell the user after something failed in the session if its JVM is gone; empty if it is there."""
    how = _what_is_wrong(spark, _process_of(spark))
    return _told(how) if how else ""


def alive(spark: SparkSession) -> bool:
    """Whether the session can still run jobs; the JVM may be gone without a word."""
    return not _what_is_wrong(spark, _process_of(spark))


def _process_of(spark: SparkSession) -> subprocess.Popen[bytes] | None:
    """The process of the JVM, if this Python has started it. `spark-submit` does it the other way round."""
    gateway: Any = spark.sparkContext._gateway
    return getattr(gateway, "proc", None)


def _what_is_wrong(spark: SparkSession, process: subprocess.Popen[bytes] | None) -> str:
    """Asks the JVM for a sign of life, and says what it lacks. May wait for ever."""
    try:
        java: Any = spark.sparkContext._jsc
        if java is None or java.sc().isStopped():
            return "was stopped" if process is None or process.poll() is None else _ended(process)
        if not java.sc().dagScheduler().eventProcessLoop().isActive():
            return "can start no jobs any more, since its scheduler has died"
    except (Py4JError, OSError) as error:
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # its connections are closed before it has ended
                process.wait(PATIENCE)
                return _ended(process)
        return f"does not answer ({type(error).__name__})"
    return ""


def _ended(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    if code in _OUT_OF_MEMORY:
        return "ran out of memory (java.lang.OutOfMemoryError)"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _told(how: str) -> str:
    if how == "was stopped":
        return "the Spark session was stopped while the pipeline ran: start the pipeline again to go on"
    return (
        f"the Spark session is gone: its JVM {how}. Nothing that is logged is lost: start the pipeline again{_MEMORY}"
    )
