"""What can go wrong, by who has to act.

A message names the operator, port or file, says what happened and what to do. Errors about the
definition of a pipeline come before any data moves.

>>> import logline as ll
>>> try:
...     ll.Pipeline("two words")
... except ll.LoglineError as error:
...     print(type(error).__name__, "-", str(error)[:53])
BadName - 'two words' can't name a pipeline: a name has letters
"""

from __future__ import annotations

import traceback

LONGEST_TEXT = 64_000
"""Characters of an error's text that are logged: its beginning and its end."""


def message_of(error: BaseException) -> str:
    """What an exception says, as text that a log can hold."""
    try:
        return loggable(str(error))
    except BaseException as other:  # its __str__ is user code too
        return f"(it can't be shown: its __str__ raised {type(other).__name__})"


def told(error: BaseException) -> str:
    """An exception as text that a log can hold, without Logline's own frames, unless there are no others."""
    try:
        return loggable("".join(_trimmed(traceback.TracebackException.from_exception(error)).format()))
    except BaseException:
        return message_of(error)


def loggable(text: str) -> str:
    r"""Text that a log can hold. It may hold halves of characters (from a file name, say), or be far too long.

    >>> loggable("no such file: caf\udce9")
    'no such file: caf?'
    """
    if len(text) > LONGEST_TEXT:  # whole pages of an answer, say: a log is no place for them
        half = LONGEST_TEXT // 2
        text = f"{text[:half]} [... {len(text) - 2 * half:,} characters left out ...] {text[-half:]}"
    return text.encode(errors="replace").decode()


def _trimmed(text: traceback.TracebackException) -> traceback.TracebackException:
    theirs = [frame for frame in text.stack if not frame.filename.startswith(PACKAGE)]
    if theirs:
        text.stack = traceback.StackSummary.from_list(theirs)
    for other in (text.__cause__, text.__context__):
        if other is not None:
            _trimmed(other)
    return text


PACKAGE = __file__.removesuffix("errors.py")
"""Where the files of Logline are."""


def a_kind(value: object) -> str:
    """What kind of thing was given instead: `a list`, `an int`, `None`."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


class LoglineError(Exception):
    """The base of every error that Logline raises."""


class DefinitionError(LoglineError):
    """The pipeline as written can't run. It was refused before any data moved."""


class NotYet(DefinitionError, AttributeError):
    """A name that is planned and not there yet; the message says what to do today. An AttributeError too, so that
    `hasattr` says no."""


class BadName(DefinitionError):
    """A name that is malformed, unknown, ambiguous or taken."""


class GraphError(DefinitionError):
    """Ports and connections that don't form a pipeline."""


class SchemaError(LoglineError):
    """A schema that is unknown before the run, or a batch that does not have the declared one."""


class OptionError(DefinitionError):
    """An option that is wrong, or one that is not honoured yet (never silently ignored)."""


class GuaranteeError(DefinitionError):
    """A sink that can write twice, and nobody accepted that."""


class ShippingError(DefinitionError):
    """Code or an attribute that can't be sent to a worker."""


class StateError(DefinitionError):
    """A global state that can't be written to the log and read back."""


class CodecError(LoglineError):
    """A value (an input set id, a note, an answer, an offset) that the log can't hold exactly."""


class ConnectorError(LoglineError):
    """A file or an external system that can't be read or written as it should."""


class PermanentError(ConnectorError):
    """What another try can't mend: somebody has to change the target or the pipeline first. A sink that raises it is
    not tried again, whatever its `retry` says."""


class LogError(LoglineError):
    """The log can't be used in this way."""


class LogGone(LogError):
    """Somebody has removed the log while it was in use."""


class Fenced(LogError):
    """A newer incarnation has claimed the journal (R10): this life is over, quietly."""


class Collected(LogError):
    """The event asked for has been collected (R12)."""


class LogInUse(LogError):
    """Another run holds the log's lease; `takeover=True` fences it."""

    def __init__(self, what: str) -> None:
        """`what`: which log, and who holds it. What to do is another thing on the command line."""
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}: stop that run, or start with takeover=True to fence it off"


class TakenOver(LogError):
    """Another run has taken the log over while this one ran (R10). What this one had logged is the other's now."""


class PipelineChanged(LogError):
    """The pipeline differs from the log's beyond what a resume allows (R14)."""


class AnswerMismatch(LoglineError):
    """After a crash, `generate` made another call than the one whose answer was kept (R9)."""


class TryOver(LoglineError):
    """A `ctx.call` through the context of a try that was given up, after its `timeout`, say. Nothing was asked; or
    the answer came too late for this try, and the next one gets it."""


class KilledItsProcess(LoglineError):
    """An input set that killed its process again and again; it is diverted or dropped like one that raised."""


class RuleBroken(LoglineError):
    """A row breaks a rule of `check_rows(on_fail="stop")`."""


class SessionGone(LoglineError):
    """The Spark session that an operator needs is gone. No input set is to blame, so none is diverted or dropped: the
    run fails, and another one goes on with them."""


class Abandoned(BaseException):
    """The life is over while its user code waits for an answer. Not an Exception, so that user code does not catch
    it; the only thing that leaves user code and is not a failure of its own."""


class EngineError(LoglineError):
    """A broken invariant of the engine itself: a bug in Logline, please report it."""


class PartialData(UserWarning):
    """A warning: what was read is not all that a port has put out, since the rest is collected.

    >>> import warnings, logline as ll
    >>> warnings.filterwarnings("ignore", category=ll.PartialData)    # where that is meant to be
    """


class PipelineFailed(LoglineError):
    """The pipeline stopped because an operator failed. `operator`, `event` and `traceback` say where and why.

    >>> import pyarrow as pa, logline as ll
    >>> p = ll.Pipeline("sales")
    >>> orders = p.source("orders", ll.sources.batches([pa.table({"n": [0]})]))
    >>> def share(batch):
    ...     return pa.table({"n": [1 // n for n in batch["n"].to_pylist()]})
    >>> shares = orders.map_batches("shares", share, schema="n long")
    >>> shares.sink("store", ll.sinks.collect())
    >>> try:
    ...     _ = p.run(engine="inline")
    ... except ll.PipelineFailed as failed:
    ...     print(failed.operator, failed.event)
    shares orders:1
    """

    def __init__(self, message: str, *, operator: str = "", event: str = "", traceback: str = "") -> None:
        super().__init__(message if not traceback else f"{message}\n\n{traceback}")
        self.operator = operator
        self.event = event
        self.traceback = traceback

    @classmethod
    def of_engine(cls, error: BaseException) -> PipelineFailed:
        """What ended a run and is no failure of an operator. What is wrong with the log (its disk is full, it is
        gone, it is another one) is said in one line; anything else is a bug of Logline's, with its traceback."""
        if isinstance(error, LogError):
            return cls(str(error))
        trace = "".join(traceback.format_exception(error))
        return cls(f"the engine failed: {type(error).__name__}: {error}", traceback=trace)


def reason_of(error: PipelineFailed | None) -> str:
    """Why a run failed, in one line; empty if it has not."""
    return str(error).splitlines()[0] if error is not None else ""
