"""Spark DDL as an Arrow schema: "id long, score double, tags array<string> NOT NULL".

The types map as Spark's own Arrow conversion maps them, so that a DataFrame and the schema written for it
agree: `timestamp` is an instant (UTC, microseconds), `timestamp_ntz` a wall-clock time without a zone.

    >>> parse_ddl("id long NOT NULL, tags array<string>")
    id: int64 not null
    tags: list<element: string>
      child 0, element: string
"""

from __future__ import annotations

import re

import pyarrow as pa

from logline.errors import SchemaError

_SIMPLE = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
    "void": pa.null(),
}
_DECIMAL = ("decimal", "dec", "numeric")
_LIMITED = ("char", "character", "varchar")  # the length is Spark's business when it writes to a table
_TOKEN = re.compile(r"""\s*(?:(?P<tick>`(?:[^`]|``)*`)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
                        |(?P<word>\w+)|(?P<mark>[<>(),:]))""", re.VERBOSE | re.DOTALL)  # fmt: skip


def parse_ddl(text: str) -> pa.Schema:
    """Reads Spark DDL; a mistake is a SchemaError that shows where it is."""
    return _Reader(text).schema()


class _Reader:
    """Recursive descent over the tokens of one DDL text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        self.at = 0
        end, stop = 0, len(text.rstrip())
        while end < stop:
            match = _TOKEN.match(text, end)
            if match is None:
                raise self.error("unexpected character", end + len(text[end:]) - len(text[end:].lstrip()))
            kind = match.lastgroup or ""
            self.tokens.append((kind, match[kind], match.start(kind)))
            end = match.end()

    def error(self, what: str, position: int | None = None) -> SchemaError:
        if position is None:
            position = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        rest = self.text[position:]
        where = f"at {rest[:20]!r}" if rest else "at the end"
        return SchemaError(
            f"the schema {self.text!r} is not Spark DDL: {what} {where}; "
            "write columns as 'name type', for example 'id long, tags array<string>'"
        )

    def peek(self) -> str:
        """The next mark or word in lower case; quoted text is none of these."""
        if self.at == len(self.tokens):
            return ""
        kind, token, _ = self.tokens[self.at]
        return token.lower() if kind in ("word", "mark") else f"<{kind}>"

    def take(self, *wanted: str) -> bool:
        if self.peek() in wanted:
            self.at += 1
            return True
        return False

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise self.error(f"expected {mark!r}")

    def schema(self) -> pa.Schema:
        fields = self.fields()
        if self.at < len(self.tokens):
            raise self.error("expected ',' or the end")
        return pa.schema(fields)

    def fields(self) -> list[pa.Field]:
        fields = [self.field()]
        while self.take(","):
            fields.append(self.field())
        names = [field.name for field in fields]
        for name in names:
            if names.count(name) > 1:
                raise SchemaError(f"the schema {self.text!r} has the column {name!r} twice: rename one")
        return fields

    def field(self) -> pa.Field:
        name = self.name()
        self.take(":")  # Spark allows 'name: type' as well
        kind = self.type()
        nullable = True
        if self.take("not"):
            self.need("null")
            nullable = False
        if self.take("comment"):
            self.need("<text>")
            while self.take("<text>"):  # 'it''s': texts side by side are one
                pass
        return pa.field(name, kind, nullable=nullable)

    def name(self) -> str:
        if self.at == len(self.tokens) or self.tokens[self.at][0] not in ("word", "tick"):
            raise self.error("expected a column name")
        kind, token, _ = self.tokens[self.at]
        self.at += 1
        return token if kind == "word" else token[1:-1].replace("``", "`")

    def type(self) -> pa.DataType:
        start = self.at
        if self.at == len(self.tokens) or self.tokens[self.at][0] != "word":
            raise self.error("expected a type")
        word = self.peek()
        self.at += 1
        if word in _SIMPLE:
            return _SIMPLE[word]
        if word in _DECIMAL:
            return self.decimal()
        if word in _LIMITED:
            self.need("(")
            self.number()
            self.need(")")
            return pa.string()
        if word == "array":
            self.need("<")
            element = self.type()
            self.need(">")
            return pa.list_(pa.field("element", element))
        if word == "map":
            self.need("<")
            key = self.type()
            self.need(",")
            value = self.type()
            self.need(">")
            return pa.map_(key, value)
        if word == "struct":
            self.need("<")
            fields = [] if self.peek() == ">" else self.fields()
            self.need(">")
            return pa.struct(fields)
        self.at = start
        raise self.error(f"unknown type {word!r}")

    def decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        start = self.at
        if self.take("("):
            precision = self.number()
            if self.take(","):
                scale = self.number()
            self.need(")")
        if not 1 <= precision <= 38 or scale > precision:
            self.at = start
            raise self.error("a decimal has 1 to 38 digits, and no more after the point than in all,")
        return pa.decimal128(precision, scale)

    def number(self) -> int:
        token = self.peek()
        if not token.isdecimal():
            raise self.error("expected a number")
        self.at += 1
        return int(token)
