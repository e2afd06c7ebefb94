"""The event state of an input set in the log: how a checkpoint is written and read (R22).

`graph/event_states.py` says which way an operator's states go. What would come back as something else is refused when
it is written, as of a global state (`graph/states.py`). The layout goes with the bytes: code whose states are of
another kind does not get to read them (R14).

    >>> class Counts(Operator):
    ...     def assign(self, event, ctx): return ["all"]
    ...     def update(self, inset, acc, event): return {"n": 1, "seen": (1, 2)}
    >>> states = event_states_of("counts", Counts())
    >>> data, layout = states.encode({"n": 1, "seen": (1, 2)})
    >>> layout, states.decode(data, layout)
    ('plain', {'n': 1, 'seen': (1, 2)})
"""

from __future__ import annotations

from typing import Any, Protocol

from logline.engine import codec
from logline.errors import CodecError, LoglineError, StateError
from logline.graph.event_states import REMEDY, form_of
from logline.graph.operator import Operator
from logline.graph.states import decode_state, differs, encode_state


class EventStates(Protocol):
    """How the event states of one operator are written to the log and read back."""

    def encode(self, acc: Any) -> tuple[bytes, str]:
        """The bytes of an event state, and their layout."""

    def decode(self, data: bytes, layout: str) -> Any:
        """The event state that was encoded; raises if it is of another layout than this operator's."""


class _Of:
    """The event states of one operator, whichever way they go."""

    def __init__(self, name: str, op: Operator[Any, Any]) -> None:
        self.name = name
        self.op = op
        self.form = form_of(name, op)
        self._checked = False
        """Whether one came back as it was. The first state of a life tells nearly always."""

    def encode(self, acc: Any) -> tuple[bytes, str]:
        what = f"operator {self.name!r}: its event state"
        try:
            data = self._write(acc)
        except CodecError as error:
            raise StateError(f"{what} can't be logged: {error}: {REMEDY}") from error
        except LoglineError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            raise StateError(f"{what}, a {type(acc).__name__}, can't be logged ({text}): {REMEDY}") from error
        if not self._checked:
            self._check(acc, data)
            self._checked = True
        return data, self.form.layout

    def decode(self, data: bytes, layout: str) -> Any:
        if layout != self.form.layout:
            raise StateError(
                f"operator {self.name!r}: the log has a checkpoint of an input set that other code has made: its "
                f"event state is {layout!r}, and this code has {self.form.layout!r}. Resume with the code that made "
                "it until no set is open, or give the operator another name, without was="
            )
        try:
            return self._read(data)
        except Exception as error:
            raise StateError(
                f"operator {self.name!r}: a checkpoint can't be read back ({type(error).__name__}: {error}): resume "
                "with the code that made it"
            ) from error

    def _write(self, acc: Any) -> bytes:
        match self.form.way:
            case "own":
                data = self.op.encode(acc)
                if not isinstance(data, bytes):
                    raise CodecError(f"encode() gave {type(data).__name__}, not bytes")
                return data
            case "typed":
                return encode_state(acc)
            case "plain":
                return codec.encode(acc)

    def _read(self, data: bytes) -> Any:
        match self.form.way:
            case "own":
                return self.op.decode(data)
            case "typed":
                return decode_state(data, self.form.declared)
            case "plain":
                return codec.decode(data)

    def _check(self, acc: Any, data: bytes) -> None:
        back = self.decode(data, self.form.layout)
        if self.form.way == "own":  # the values need not be comparable, but they must come to the same bytes
            if self._write(back) != data:
                what = "encode() and decode() don't fit: a state came back changed"
                raise StateError(f"operator {self.name!r}: {what}")
        elif self.form.way == "typed" and (path := differs(acc, back)) is not None:
            where = f"the field {path!r} of its event state" if path else "its event state"
            raise StateError(
                f"operator {self.name!r}: {where} would come back changed from the log: declare the exact types of "
                "its values as the result of update(), or define encode and decode"
            )


def event_states_of(name: str, op: Operator[Any, Any]) -> EventStates:
    """How this operator's event states are logged. What is wrong with them is said when one is wanted: an operator
    that never has a checkpoint needs none of this."""
    return _Late(name, op)


class _Late:
    """Looks at the operator when the first state is written or read."""

    def __init__(self, name: str, op: Operator[Any, Any]) -> None:
        self._name = name
        self._op = op
        self._of: _Of | None = None

    def _states(self) -> _Of:
        if self._of is None:
            self._of = _Of(self._name, self._op)
        return self._of

    def encode(self, acc: Any) -> tuple[bytes, str]:
        return self._states().encode(acc)

    def decode(self, data: bytes, layout: str) -> Any:
        return self._states().decode(data, layout)


class _None:
    """Of a stateless operator."""

    def encode(self, acc: Any) -> tuple[bytes, str]:
        raise AssertionError("a stateless operator has no event state that lasts")

    def decode(self, data: bytes, layout: str) -> Any:
        raise AssertionError("a stateless operator has no event state that lasts")


NO_EVENT_STATES: EventStates = _None()
