"""CSV and JSON lines: read again from any offset the same rows come, and a wrong line is named."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from logline.connectors import sinks, sources, text_files
from logline.engine import codec
from logline.errors import ConnectorError, DefinitionError, OptionError, PipelineFailed, SchemaError
from logline.pipeline import Pipeline

FORMS: dict[str, Any] = {"csv": sources.csv, "json": sources.json}
SUFFIX = {"csv": ".csv", "json": ".jsonl"}


def text(form, *ids):
    """A file of ids with names: "n1" and so on."""
    if form == "csv":
        return "id,name\n" + "".join(f"{n},n{n}\n" for n in ids)
    return "".join(json.dumps({"id": n, "name": f"n{n}"}) + "\n" for n in ids)


def put(form, folder, name, *ids):
    path = folder / f"{name}{SUFFIX[form]}"
    path.write_text(text(form, *ids))
    return path


def read(source, partition, offset=None):
    return [(batch.to_pylist(), at) for batch, at in source.read(partition, offset)]


def rows(source):
    return [row for name in source.partitions() for some, _ in read(source, name) for row in some]


def ids(source):
    return [row["id"] for row in rows(source)]


@pytest.fixture(params=["csv", "json"])
def form(request):
    return request.param


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(text_files, "BLOCK", 64)


# ---- both forms -------------------------------------------------------------------------------------------


def test_a_file_a_folder_a_pattern(form, tmp_path):
    put(form, tmp_path, "b", 3, 4)
    put(form, tmp_path, "a", 1, 2)
    put(form, tmp_path, ".hidden", 99)
    (tmp_path / "notes.txt").write_text("no data")
    make = FORMS[form]
    assert ids(make(tmp_path)) == [1, 2, 3, 4]
    assert ids(make(tmp_path / f"b{SUFFIX[form]}")) == [3, 4]
    source = cloudpickle.loads(cloudpickle.dumps(make(f"{tmp_path}/[a]*")))
    assert ids(source) == [1, 2]
    assert source.schema == pa.schema({"id": pa.int64(), "name": pa.string()})
    assert source.describe(f"a{SUFFIX[form]}") == f"{form}({tmp_path}/a{SUFFIX[form]})"
    assert source.dataset() == ("file", f"{tmp_path}/[a]*")
    assert not source.grows
    assert source.in_turn
    with pytest.raises(DefinitionError, match=rf"{form}\(\): there is no .*/none; give a file"):
        make(tmp_path / "none")


def test_goes_on_exactly_after_any_offset(form, tmp_path, small, monkeypatch):
    monkeypatch.setattr(text_files, "ROWS", 3)
    put(form, tmp_path, "a", *range(40))
    source = FORMS[form](tmp_path)
    (name,) = source.partitions()
    everything = read(source, name)
    assert len(everything) > 10
    assert [row["id"] for some, _ in everything for row in some] == list(range(40))
    for place, (_, offset) in enumerate(everything, start=1):
        assert read(source, name, codec.decode(codec.encode(offset))) == everything[place:]
    stamp = everything[0][1][1:]
    for done in range(41):  # in the midst of a block, too
        assert [row["id"] for some, _ in read(source, name, (done, *stamp)) for row in some] == list(range(done, 40))


def test_a_block_is_read_at_a_time(form, tmp_path, small):
    path = put(form, tmp_path, "a", *range(100_000))
    source = FORMS[form](tmp_path)
    reading = source.read(path.name, None)
    batch, offset = next(reading)
    assert 0 < batch.num_rows < 20
    reading.close()
    assert offset[0] == batch.num_rows


def test_files_without_rows(form, tmp_path):
    (tmp_path / f"a{SUFFIX[form]}").write_text("")
    (tmp_path / f"b{SUFFIX[form]}").write_text("\n\n")
    with pytest.raises(SchemaError, match="has a row yet: give schema="):
        FORMS[form](tmp_path)
    assert rows(FORMS[form](tmp_path, schema="id long, name string")) == []
    put(form, tmp_path, "c")
    put(form, tmp_path, "d", 1)
    assert ids(FORMS[form](tmp_path)) == [1]
    with pytest.raises(SchemaError, match=r"no (CSV file|file of JSON lines) in .*give schema="):
        FORMS[form](tmp_path / "*.none")


def test_no_final_newline_windows_newlines_empty_lines_a_mark(form, tmp_path, small):
    path = put(form, tmp_path, "a", *range(20))
    plain = path.read_text()
    for other in (plain[:-1], plain.replace("\n", "\r\n"), plain.replace("\n", "\n\n"), "\ufeff" + plain):
        path.write_text(other, newline="")
        assert ids(FORMS[form](tmp_path)) == list(range(20)), other[:30]
        assert ids(FORMS[form](tmp_path, schema="id long, name string")) == list(range(20)), other[:30]


def test_compressed_files(form, tmp_path, small):
    content = text(form, *range(1000)).encode()
    for suffix, compress in ((".gz", gzip.compress), (".bz2", bz2.compress)):
        path = tmp_path / f"a{SUFFIX[form]}{suffix}"
        path.write_bytes(compress(content))
        source = FORMS[form](tmp_path)
        assert source.partitions() == (path.name,)
        assert ids(source) == list(range(1000))
        (_, offset), *_ = everything = read(source, path.name)
        assert read(source, path.name, offset) == everything[1:]
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(ConnectorError, match=r"can't be read as a .*, it may be damaged: .*[Tt]runcated"):
            rows(source)
        path.unlink()


def test_a_file_that_changed_or_is_gone_is_named(form, tmp_path):
    path = put(form, tmp_path, "a", 1, 2)
    source = FORMS[form](path)
    ((_, offset),) = read(source, path.name)
    assert read(source, path.name, offset) == []
    before = path.stat()
    put(form, tmp_path, "a", 1, 3)
    os.utime(path, ns=(0, before.st_mtime_ns + 1))
    with pytest.raises(ConnectorError, match=rf"{form}\(\): .*a\.\w+ has changed since its first 2 rows were read"):
        read(source, path.name, offset)
    path.unlink()
    with pytest.raises(ConnectorError, match="is gone: bring it back"):
        read(source, path.name, offset)


def test_a_file_that_is_written_to_while_it_is_read(form, tmp_path, small):
    """The last line may be half a line by then."""
    path = put(form, tmp_path, "a", *range(100))
    source = FORMS[form](path)
    reading = source.read(path.name, None)
    next(reading)
    with path.open("a") as file:
        file.write(text(form, 1))
    with pytest.raises(ConnectorError, match=r"has changed since its first \d+ rows were read"):
        list(reading)


def test_a_column_that_tells_no_type(form, tmp_path):
    (tmp_path / f"a{SUFFIX[form]}").write_text("id,name\n1,\n" if form == "csv" else '{"id": 1, "name": null}\n')
    with pytest.raises(SchemaError, match=r"have no value in column 'name', .*give schema="):
        FORMS[form](tmp_path)
    assert rows(FORMS[form](tmp_path, schema="id long, name string")) == [{"id": 1, "name": None}]


def test_a_wrong_line_is_named(form, tmp_path, small):
    path = put(form, tmp_path, "a", *range(50))
    good = path.read_text().splitlines()
    wrong = "x,n" if form == "csv" else '{"id": "x", "name": "n"}'
    for at in (1, 40, 50):
        path.write_text("\n".join([*good[:at], wrong, *good[at:]]))
        source = FORMS[form](path, schema="id long, name string")
        with pytest.raises(ConnectorError, match=rf"a\.\w+ line {at + 1}: .*Correct the line and ") as caught:
            rows(source)
        said = "start again on the same log" if at == 1 else "begin with a fresh log"
        assert said in str(caught.value)
        assert "'x'" in str(caught.value) or "string" in str(caught.value)
        assert "give schema=" not in str(caught.value)


def test_types_told_from_the_first_rows_may_be_wrong(form, tmp_path, small):
    path = put(form, tmp_path, "a", *range(50))
    with path.open("a") as file:
        file.write("0.5,half\n" if form == "csv" else '{"id": 0.5, "name": "half"}\n')
    line = 52 if form == "csv" else 51
    with pytest.raises(ConnectorError, match=rf"line {line}: .*give schema="):
        rows(FORMS[form](path))
    assert ids(FORMS[form](path, schema="id double, name string"))[-1] == 0.5


def test_bytes_that_are_no_utf8(form, tmp_path, small):
    path = put(form, tmp_path, "a", *range(50))
    path.write_bytes(path.read_bytes().replace(b"n30", b"\xff30"))
    line = 32 if form == "csv" else 31
    with pytest.raises(ConnectorError, match=rf"line {line}: .*(UTF8|utf-8)"):
        rows(FORMS[form](path, schema="id long, name string"))


def test_a_null_where_there_may_be_none(form, tmp_path):
    (tmp_path / f"a{SUFFIX[form]}").write_text("id,name\n,x\n" if form == "csv" else '{"name": "x"}\n')
    with pytest.raises(SchemaError, match=r"a\.\w+: the column 'id' is declared NOT NULL"):
        rows(FORMS[form](tmp_path, schema="id long not null, name string"))


def test_types(form, tmp_path):
    values = {"at": "2026-03-01T10:00:00Z", "day": "2026-03-01", "price": "1.50", "yes": True, "x": 0.25}
    path = tmp_path / f"a{SUFFIX[form]}"
    if form == "csv":
        path.write_text("at,day,price,yes,x\n2026-03-01T10:00:00Z,2026-03-01,1.50,true,0.25\n")
    else:
        path.write_text(json.dumps(values) + "\n")
    ddl = "at timestamp, day date, price decimal(10,2), yes boolean, x double"
    (row,) = rows(FORMS[form](tmp_path, schema=ddl))
    assert [str(value) for value in row.values()] == [
        "2026-03-01 10:00:00+00:00", "2026-03-01", "1.50", "True", "0.25",
    ]  # fmt: skip
    with pytest.raises(SchemaError, match=r"map<.*column 'm'"):
        FORMS[form](tmp_path / "*.none", schema="m map<string,long>")


def test_a_later_run_goes_on_in_the_files(form, tmp_path, small):
    data, log = tmp_path / "data", f"lmdb:{tmp_path}/log"
    data.mkdir()
    for n in range(3):
        put(form, data, n, *range(100 * n, 100 * n + 100))

    def run(stop_at=None):
        def check(batch):
            if stop_at is not None and stop_at in batch["id"].to_pylist():
                raise ValueError("not this one")
            return batch

        p = Pipeline("copied")
        read = p.source("ids", FORMS[form](data), rows=1)
        read.map_batches("checked", check, schema="id long, name string").sink("store", sinks.collect())
        return p.run(log, engine="inline")

    with pytest.raises(PipelineFailed, match="not this one"):
        run(stop_at=150)
    assert run().result("store")["id"].to_pylist() == list(range(300))


def test_a_wrong_line_of_a_file_that_was_not_begun_can_be_corrected(form, tmp_path):
    put(form, tmp_path, "a", 1)
    path = put(form, tmp_path, "b", 2, 3)
    good = path.read_text()
    path.write_text(good + "wrong,wrong,wrong\n")

    def run():
        p = Pipeline("corrected")
        p.source("ids", FORMS[form](tmp_path / f"*{SUFFIX[form]}")).sink("store", sinks.collect())
        return p.run(f"lmdb:{tmp_path}/log", engine="inline")

    with pytest.raises(PipelineFailed, match=r"b\.\w+ line \d: .*start again on the same log"):
        run()
    path.write_text(good)
    assert run().result("store")["id"].to_pylist() == [1, 2, 3]


# ---- CSV alone --------------------------------------------------------------------------------------------


def csv(tmp_path, content, **options):
    (tmp_path / "a.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return sources.csv(tmp_path / "a.csv", **options)


def test_options_of_csv(tmp_path):
    assert rows(csv(tmp_path, "a;b\n1;'x;y'\n", delimiter=";", quote="'")) == [{"a": 1, "b": "x;y"}]
    assert rows(csv(tmp_path, '1\t"x\n', delimiter="\t", quote=None, names=["a", "b"])) == [{"a": 1, "b": '"x'}]
    assert rows(csv(tmp_path, "a,b\n-,x\n2,-\n", nulls=["-"])) == [{"a": None, "b": "x"}, {"a": 2, "b": None}]
    for encoding in ("latin-1", "utf-16", "utf-8-sig"):
        assert rows(csv(tmp_path, "a,b\n1,é\n".encode(encoding), encoding=encoding)) == [{"a": 1, "b": "é"}]


def test_an_empty_field_is_null_and_an_empty_text_is_quoted(tmp_path):
    assert rows(csv(tmp_path, 'a,b\n1,\n,""\n', schema="a long, b string")) == [
        {"a": 1, "b": None},
        {"a": None, "b": ""},
    ]


def test_newlines_in_quotes(tmp_path, small):
    content = "id,name\n" + "".join(f'{n},"a\n{n}"\n' for n in range(30))
    assert [row["name"] for row in rows(csv(tmp_path, content))] == [f"a\n{n}" for n in range(30)]
    with pytest.raises(ConnectorError, match="line 62: it has 3 fields, and the file has 2 columns"):
        rows(csv(tmp_path, content + "1,2,3\n"))


def test_a_quote_that_nobody_closes(tmp_path, small):
    """pyarrow would take the rest of the file for the end of that text."""
    many = "".join(f"{n},a\n" for n in range(20))
    source = csv(tmp_path, f'id,name\n{many}20,"b\n21,c\n', schema="id long, name string")
    got: list[int] = []
    reading = source.read("a.csv", None)
    with pytest.raises(ConnectorError, match=r"line 22: it has a quote that is not closed"):
        got.extend(row["id"] for batch, _ in reading for row in batch.to_pylist())
    assert 20 not in got
    for whole in ('20,5" pipe\n', '20,"5"" pipe"\n', '20,"5"" pipe"', '"20",\'"\'\n'):
        assert ids(csv(tmp_path, f"id,name\n{many}{whole}", schema="id long, name string"))[-1] == 20, whole
    assert ids(csv(tmp_path, f'id,name\n{many}20,"b\n', quote=None))[-1] == 20


def test_fields_that_are_large_for_python(tmp_path):
    content = f'id,name\n1,{"x" * 200_000}\n2,"{"y" * 200_000}"\n'
    assert ids(csv(tmp_path, content)) == [1, 2]
    with pytest.raises(ConnectorError, match="line 4: column 'id' takes int64: invalid value 'z'"):
        ids(csv(tmp_path, content + "z,z\n", schema="id long, name string"))
    with pytest.raises(ConnectorError, match="line 1: it should have the names of the columns"):
        csv(tmp_path, "x" * 200_000)


def test_wrong_options_of_csv(tmp_path):
    for options, said in [
        ({"delimiter": "::"}, "delimiter='::': give one ASCII character"),
        ({"quote": ""}, "quote='': give one ASCII character"),
        ({"encoding": "martian"}, "encoding='martian': Python knows none"),
        ({"names": "ab"}, "take a list of texts"),
    ]:
        with pytest.raises(OptionError, match=said):
            csv(tmp_path, "a,b\n", **options)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ("id", r"has no column 'name' \(string\)"),
        ("id,name,more", "has the column 'more', which is not in the schema"),
        ("id,name,name", "has the column 'name' twice"),
    ],
)
def test_other_columns_are_refused_before_anything_is_read(tmp_path, header, fault):
    put("csv", tmp_path, "a", 1)
    source = sources.csv(tmp_path)
    (tmp_path / "b.csv").write_text(header)
    for look in (source.partitions, lambda: sources.csv(tmp_path)):
        with pytest.raises(SchemaError, match=rf"csv\(\): .*b\.csv {fault}; all files must have the same schema"):
            look()
    (tmp_path / "b.csv").write_text(header + "\n1,x,y\n"[: 3 + 2 * header.count(",")])
    with pytest.raises(SchemaError, match=fault):
        read(source, "b.csv")
    (tmp_path / "b.csv").write_text("name,id\nx,2\n")
    assert rows(source)[1:] == [{"id": 2, "name": "x"}]


def test_a_record_that_is_larger_than_a_block(tmp_path, small, monkeypatch):
    many = "".join(f"{n},a\n" for n in range(30))
    source = csv(tmp_path, f"id,name\n{many}30,{'x' * 500}\n31,b\n")
    assert ids(source) == list(range(32))
    monkeypatch.setattr("logline.connectors.csv_source._LARGEST", 64)
    with pytest.raises(ConnectorError, match=r"a\.csv line 1: or one after it: .*straddl"):
        rows(source)


# ---- JSON alone -------------------------------------------------------------------------------------------


def jsonl(tmp_path, content, **options):
    (tmp_path / "a.json").write_text(content)
    return sources.json(tmp_path, **options)


def test_a_missing_key_is_null_and_another_key_is_an_error(tmp_path):
    content = '{"id": 1}\n{"name": "a", "id": 2}\n{}\n'
    assert ids(jsonl(tmp_path, content)) == [1, 2, None]
    with pytest.raises(ConnectorError, match="line 2: it has the key 'name', which is not in the schema"):
        ids(jsonl(tmp_path, content, schema="id long"))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("[1]", "it is no JSON object; write one object a line"),
        ("7", "it is no JSON object; write one object a line"),
        ("null", "it is no JSON object; write one object a line"),
        ('{"id": ', r"it is no JSON \("),
        ('{"id": 1} {"id": 2}', r"it is no JSON \("),
        ('{"id":\n1}', r"it is no JSON \("),
        ('{"id": 1, "id": 2}', "twice"),
    ],
)
def test_what_is_not_an_object_a_line(tmp_path, line, fault):
    with pytest.raises(ConnectorError, match=f"a.json line 3: .*{fault}"):
        rows(jsonl(tmp_path, f'{{"id": 1}}\n\n{line}\n{{"id": 2}}\n', schema="id long"))


def test_nested_values_and_lines_larger_than_a_block(tmp_path, small):
    value = {"id": 1, "of": {"xs": list(range(200)), "s": "y" * 500}}
    source = jsonl(tmp_path, (json.dumps(value) + "\n") * 3, schema="id long, of struct<xs: array<long>, s: string>")
    assert rows(source) == [value] * 3


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("logline.connectors.json_source._LINE", 1000)
    monkeypatch.setattr(text_files, "BLOCK", 100)
    with pytest.raises(ConnectorError, match="line 2: it has more than"):
        rows(jsonl(tmp_path, '{"id": 1}\n{"id": "' + "x" * 2000, schema="id long"))
