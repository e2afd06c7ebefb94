import pyarrow as pa
import pytest

from logline.errors import SchemaError
from logline.graph.ddl import parse_ddl


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int8()),
        ("byte", pa.int8()),
        ("smallint", pa.int16()),
        ("int", pa.int32()),
        ("INTEGER", pa.int32()),
        ("long", pa.int64()),
        ("bigint", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("string", pa.string()),
        ("varchar(10)", pa.string()),
        ("binary", pa.binary()),
        ("void", pa.null()),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(7)", pa.decimal128(7, 0)),
        ("decimal(10,2)", pa.decimal128(10, 2)),
        ("array<string>", pa.list_(pa.string())),
        ("array<array<int>>", pa.list_(pa.list_(pa.int32()))),
        ("map<string,int>", pa.map_(pa.string(), pa.int32())),
        ("struct<a:int,b:string>", pa.struct([("a", pa.int32()), ("b", pa.string())])),
        ("struct<a int, b: array<double>>", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))])),
        ("struct<>", pa.struct([])),
    ],
)
def test_types_are_those_of_spark(text: str, expected: pa.DataType) -> None:
    assert parse_ddl(f"x {text}").field("x").type == expected


def test_columns_with_their_decorations() -> None:
    found = parse_ddl("id: long NOT NULL, `a b``c` int COMMENT 'it''s, (a) <comment>', text string comment \"x\"")
    assert found == pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("a b`c", pa.int32()), ("text", pa.string())]
    )


def test_a_field_of_a_struct_may_be_not_null() -> None:
    inner = parse_ddl("s struct<a: int NOT NULL COMMENT 'c', b: int>").field("s").type
    assert [field.nullable for field in inner] == [False, True]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected a column name at the end"),
        ("id", "expected a type at the end"),
        ("id lnog", "unknown type 'lnog' at 'lnog'"),
        ("id long,", "expected a column name at the end"),
        ("id long name string", "expected ',' or the end at 'name string'"),
        ("tags array<string", "expected '>' at the end"),
        ("m map<string>", "expected ',' at '>'"),
        ("p decimal(50,2)", "a decimal has 1 to 38 digits"),
        ("p decimal(4,5)", "no more after the point than in all"),
        ("p decimal(x)", "expected a number at 'x)'"),
        ("id long not", "expected 'null' at the end"),
        ("id long ; drop", "unexpected character at '; drop'"),
        ("`id long", "unexpected character at '`id long'"),
    ],
)
def test_a_mistake_is_shown_where_it_is(text: str, says: str) -> None:
    with pytest.raises(SchemaError) as info:
        parse_ddl(text)
    assert says in str(info.value)
    assert "write columns as 'name type'" in str(info.value)


def test_a_column_that_comes_twice() -> None:
    with pytest.raises(SchemaError, match="has the column 'a' twice"):
        parse_ddl("a int, b int, a string")
