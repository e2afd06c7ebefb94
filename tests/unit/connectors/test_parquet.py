"""Parquet files: read again from any offset the same rows come, written again the same file stays."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from pathlib import Path

import cloudpickle
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from logline.connectors import parquet_source, sinks, sources
from logline.engine import codec
from logline.errors import ConnectorError, DefinitionError, OptionError, PipelineChanged, PipelineFailed, SchemaError
from logline.graph.model import Retry
from logline.pipeline import Pipeline

SCOPE = "log/store/out"


def put(path, *ids, group=1 << 20, **more):
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), **more}), path, row_group_size=group)
    return path


def read(source, partition, offset=None):
    return [(batch["id"].to_pylist(), at) for batch, at in source.read(partition, offset)]


def rows(source):
    return [n for name in source.partitions() for ids, _ in read(source, name) for n in ids]


# ---- the source: which files ------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    put(tmp_path / "b.parquet", 3, 4)
    put(tmp_path / "a.parquet", 1, 2)
    put(tmp_path / ".hidden.parquet", 99)
    put(tmp_path / "_aside.parquet", 99)
    (tmp_path / "notes.txt").write_text("no data")
    (tmp_path / "sub").mkdir()
    put(tmp_path / "sub" / "c.parquet", 5)
    return tmp_path


def test_a_file_a_folder_a_pattern(folder):
    forms = {
        folder / "b.parquet": ("b.parquet",),
        folder: ("a.parquet", "b.parquet"),
        folder / "*.parquet": ("a.parquet", "b.parquet"),
        f"{folder}/*/c.parquet": ("sub/c.parquet",),
        f"{folder}/**/[bc].parquet": ("b.parquet", "sub/c.parquet"),
    }
    for path, names in forms.items():
        assert sources.parquet(path).partitions() == names, path
    assert rows(sources.parquet(str(folder))) == [1, 2, 3, 4]
    assert rows(sources.parquet(f"{folder}/**/[bc].parquet")) == [3, 4, 5]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path):
    put(tmp_path / "a[1].parquet", 1)
    assert rows(sources.parquet(tmp_path / "a[1].parquet")) == [1]
    (tmp_path / "d[1]").mkdir()
    put(tmp_path / "d[1]" / "x.parquet", 2)
    assert rows(sources.parquet(tmp_path / "d[1]")) == [2]


def test_the_working_directory_does_not_matter_later(folder, monkeypatch):
    monkeypatch.chdir(folder)
    source = cloudpickle.loads(cloudpickle.dumps(sources.parquet("sub")))
    monkeypatch.chdir("/")
    assert rows(source) == [5]
    assert source.describe("c.parquet") == f"parquet({folder}/sub/c.parquet)"


def test_nothing_there(tmp_path):
    with pytest.raises(DefinitionError, match=r"there is no .*/orders; give a file, a folder or a pattern"):
        sources.parquet(tmp_path / "orders")
    for path in (tmp_path, tmp_path / "*.parquet"):
        with pytest.raises(SchemaError, match=r"no Parquet file in .*give schema="):
            sources.parquet(path)
        source = sources.parquet(path, schema="id long")
        assert source.partitions() == ()
        put(tmp_path / "a.parquet", 1)  # there by the time the pipeline is started
        assert rows(source) == [1]
        (tmp_path / "a.parquet").unlink()


# ---- the source: what is in them --------------------------------------------------------------------------


def test_goes_on_exactly_after_any_offset(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_source, "ROWS", 3)
    put(tmp_path / "a.parquet", *range(20), group=8)
    source = sources.parquet(tmp_path)
    everything = read(source, "a.parquet")
    assert [ids for ids, _ in everything] == [
        [0, 1, 2], [3, 4, 5], [6, 7], [8, 9, 10], [11, 12, 13], [14, 15], [16, 17, 18], [19],
    ]  # fmt: skip
    for place, (_, offset) in enumerate(everything, start=1):
        logged = codec.decode(codec.encode(offset))
        assert read(source, "a.parquet", logged) == everything[place:]
    size, mtime = everything[0][1][1:]
    rest = [ids for ids, _ in read(source, "a.parquet", (4, size, mtime))]
    assert rest[:3] == [[4, 5], [6, 7], [8, 9, 10]]  # in the midst of a batch
    assert source.replayable


def test_it_reads_no_more_than_it_is_asked_for(tmp_path, monkeypatch):
    """A batch at a time: what lies behind is not even looked at."""
    monkeypatch.setattr(parquet_source, "ROWS", 4)
    path = put(tmp_path / "a.parquet", *range(1000), group=100)
    source = sources.parquet(path)
    reading = source.read("a.parquet", None)
    assert next(reading)[0].num_rows == 4
    with path.open("r+b") as file:  # in the last row group
        file.seek(pq.read_metadata(path).row_group(9).column(0).data_page_offset)
        file.write(b"\xff" * 40)
    assert sum(batch.num_rows for batch, _ in (next(reading) for _ in range(200))) == 800
    with pytest.raises(ConnectorError, match=r"a\.parquet can't be read as a Parquet file"):
        list(reading)


def test_a_file_without_rows_ends_at_once(tmp_path):
    put(tmp_path / "a.parquet")
    put(tmp_path / "b.parquet", 1)
    assert rows(sources.parquet(tmp_path)) == [1]


def test_columns_may_come_in_another_order_and_metadata_is_dropped(tmp_path):
    first = pa.table({"id": [1], "name": ["a"]}).replace_schema_metadata({"pandas": "x" * 1000})
    pq.write_table(first, tmp_path / "a.parquet")
    pq.write_table(first.select(["name", "id"]), tmp_path / "b.parquet")
    source = sources.parquet(tmp_path)
    assert source.schema == pa.schema({"id": pa.int64(), "name": pa.string()})
    for name in source.partitions():
        ((batch, _),) = source.read(name, None)
        assert batch.schema.equals(source.schema, check_metadata=True)


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"id": pa.array([1], pa.int32())}, "has int32 in column 'id', not int64"),
        ({"key": [1]}, r"has no column 'id' \(int64\)"),
        ({"id": [1], "more": [2]}, "has the column 'more', which is not in the schema"),
    ],
)
def test_another_schema_is_refused_with_file_and_column(tmp_path, columns, fault):
    put(tmp_path / "a.parquet", 1)
    source = sources.parquet(tmp_path)
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match=rf"b\.parquet {fault}; all files must have the same schema, that of"):
        sources.parquet(tmp_path)
    for look in (source.partitions, lambda: read(source, "b.parquet")):  # it came after the definition
        with pytest.raises(SchemaError, match=fault):
            look()
    with pytest.raises(SchemaError, match="the one that was given"):
        sources.parquet(tmp_path / "b.parquet", schema="id long")


def test_a_damaged_file_is_named(tmp_path):
    put(tmp_path / "a.parquet", 1)
    whole = (tmp_path / "a.parquet").read_bytes()
    for damaged in (b"", b"no parquet", whole[:-20]):
        (tmp_path / "b.parquet").write_bytes(damaged)
        with pytest.raises(ConnectorError, match=r"b\.parquet can't be read as a Parquet file"):
            sources.parquet(tmp_path)


def test_one_flipped_bit_of_what_the_sink_wrote_is_noticed(tmp_path):
    """Of plain numbers any bits make sense: only the checksum of the page tells."""
    write(opened(tmp_path, compression="none"), 1, *range(1000, 2000))
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[data.index((1500).to_bytes(8, "little"))] ^= 1
    path.write_bytes(data)
    source = sources.parquet(tmp_path)
    with pytest.raises(ConnectorError, match=r"it may be damaged: .*(CRC|checksum)"):
        rows(source)


def test_a_file_that_changed_or_is_gone_is_named(tmp_path):
    path = put(tmp_path / "a.parquet", 1, 2)
    source = sources.parquet(path)
    ((_, offset),) = read(source, "a.parquet")
    assert read(source, "a.parquet", offset) == []
    before = path.stat()
    put(path, 1, 3)
    os.utime(path, ns=(0, before.st_mtime_ns + 1))  # of the same size, a moment later
    assert path.stat().st_size == before.st_size
    with pytest.raises(ConnectorError, match=r"a\.parquet has changed since its first 2 rows were read"):
        read(source, "a.parquet", offset)
    put(path, *range(1000))
    with pytest.raises(ConnectorError, match="has changed"):
        read(source, "a.parquet", offset)
    path.unlink()
    for at in (None, offset):
        with pytest.raises(ConnectorError, match=r"a\.parquet is gone"):
            read(source, "a.parquet", at)


def test_a_file_that_is_replaced_while_it_is_read_is_read_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_source, "ROWS", 2)
    path = put(tmp_path / "a.parquet", 1, 2, 3, 4)
    source = sources.parquet(path)
    reading = source.read("a.parquet", None)
    _, first = next(reading)
    os.replace(put(tmp_path / "new", 5, 6, 7, 8), path)
    batch, second = next(reading)
    assert batch["id"].to_pylist() == [3, 4]
    assert first[1:] == second[1:]
    with pytest.raises(ConnectorError, match="has changed"):
        read(source, "a.parquet", second)


# ---- the source in a pipeline -----------------------------------------------------------------------------


def copied(folder, stop_at=None):
    def check(batch):
        if stop_at is not None and stop_at in batch["id"].to_pylist():
            raise ValueError("not this one")
        return batch

    p = Pipeline("copied")
    ids = p.source("ids", sources.parquet(folder), rows=1)
    ids.map_batches("checked", check, schema="id long").sink("store", sinks.collect())
    return p


def test_files_are_read_one_after_the_other(tmp_path):
    for n in range(3):
        put(tmp_path / f"{n}.parquet", *range(200 * n, 200 * n + 200), group=50)
    run = copied(tmp_path).run(engine="inline")
    assert run.result("store")["id"].to_pylist() == list(range(600))
    actions = run.log.table("read_action").to_pylist()
    assert f"parquet({tmp_path}/2.parquet)" in str(actions)


def test_a_later_run_goes_on_in_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_source, "ROWS", 7)
    data, log = tmp_path / "data", f"lmdb:{tmp_path}/log"
    data.mkdir()
    for n in range(3):
        put(data / f"{n}.parquet", *range(100 * n, 100 * n + 100), group=30)
    with pytest.raises(PipelineFailed, match="not this one"):
        copied(data, stop_at=150).run(log, engine="inline")
    run = copied(data).run(log, engine="inline")
    assert run.result("store")["id"].to_pylist() == list(range(300))


def test_a_file_that_came_after_the_end_is_named(tmp_path, caplog):
    (tmp_path / "in").mkdir()
    put(tmp_path / "in" / "a.parquet", 1, 2)
    away = [True]

    def store(batch, number, write_id):
        if away[0]:
            raise ValueError("the target is away")

    def start():
        p = Pipeline("added")
        source = p.source("files", sources.parquet(tmp_path / "in"))
        source.sink("store", sinks.call(store, guarantee="named"), retry=Retry(attempts=1))
        return p.run(f"lmdb:{tmp_path}/log", engine="inline")

    with pytest.raises(PipelineFailed, match="the target is away"):
        start()
    away[0] = False
    assert "does not read" not in caplog.text
    for name in ("b", "c"):  # before the pipeline has finished, and after
        put(tmp_path / "in" / f"{name}.parquet", 3)
        caplog.clear()
        assert start().status().phase == "finished"
        (told,) = [r for r in caplog.records if r.levelname == "WARNING" and "does not read" in r.message]
        assert "source 'files' has come to its end" in told.message
        assert str(tmp_path / "in" / f"{name}.parquet") in told.message
        assert "a.parquet" not in told.message


def test_a_file_that_is_gone_when_a_run_goes_on_is_named(tmp_path):
    data, log = tmp_path / "data", f"lmdb:{tmp_path}/log"
    data.mkdir()
    put(data / "0.parquet", *range(100))
    whole = put(data / "1.parquet", *range(100, 200)).read_bytes()
    (data / "1.parquet").write_bytes(b"PAR1" + b"\xff" * 100 + whole[104:])  # its footer is as it was
    with pytest.raises(PipelineFailed, match=r"ConnectorError: parquet\(\): .*1\.parquet can't be read"):
        copied(data).run(log, engine="inline")
    (data / "1.parquet").unlink()
    with pytest.raises(PipelineChanged, match=r"source 'ids' has not read all of .*1\.parquet.*, and it is gone"):
        copied(data).run(log, engine="inline")
    (data / "1.parquet").write_bytes(whole)
    put(data / "2.parquet", 200)  # came meanwhile
    run = copied(data).run(log, engine="inline")
    assert run.result("store")["id"].to_pylist() == list(range(201))
    for file in data.iterdir():
        if file.name != "2.parquet":
            file.unlink()  # what has been read may go
    assert copied(data).run(log, engine="inline").status().phase == "finished"


# ---- the sink ---------------------------------------------------------------------------------------------


def batch(*ids):
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def opened(path, scope=SCOPE, **options):
    sink = cloudpickle.loads(cloudpickle.dumps(sinks.parquet(path, **options)))
    sink.open(scope)
    return sink


def write(sink, number, *ids):
    sink.write(batch(*ids), number, f"{SCOPE}/{number}")


def asides(path):
    return [name for name in os.listdir(path) if name.startswith(".")]


def test_each_write_is_a_file_of_its_own(tmp_path):
    out = tmp_path / "deep" / "out"
    sink = opened(out)
    assert sink.guarantee == "named"
    assert not sink.kept
    for number in (1, 2, 3):
        write(sink, number, number, 10 * number)
    names = sorted(os.listdir(out))
    assert [name[:14] for name in names] == ["part-00000001-", "part-00000002-", "part-00000003-"]
    assert ds.dataset(out).to_table()["id"].to_pylist() == [1, 10, 2, 20, 3, 30]
    assert rows(sources.parquet(out)) == [1, 10, 2, 20, 3, 30]


def test_a_repeated_write_leaves_the_first_alone(tmp_path):
    write(opened(tmp_path), 1, 1)
    (name,) = os.listdir(tmp_path)
    before = (tmp_path / name).stat()
    write(opened(tmp_path), 1, 1)
    assert os.listdir(tmp_path) == [name]
    after = (tmp_path / name).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_zombie_that_looked_before_its_heir_wrote_changes_nothing(tmp_path, monkeypatch):
    """Both find no file; the zombie comes to give its file the name when the heir's has it."""
    zombie, heir = opened(tmp_path), opened(tmp_path)
    link = os.link

    def late(aside, final):
        monkeypatch.setattr(os, "link", link)
        write(heir, 1, 1)
        link(aside, final)

    monkeypatch.setattr(os, "link", late)
    write(zombie, 1, 666)
    assert pq.read_table(tmp_path)["id"].to_pylist() == [1]
    assert asides(tmp_path) == []


def test_lives_that_write_at_once(tmp_path):
    lives = [opened(tmp_path) for _ in range(4)]

    def work(life):
        for number in range(1, 31):
            write(life, number, number)

    threads = [threading.Thread(target=work, args=(life,)) for life in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(sources.parquet(tmp_path)) == list(range(1, 31))
    assert asides(tmp_path) == []


def test_another_log_writes_other_files(tmp_path):
    write(opened(tmp_path, "one log"), 1, 1)
    write(opened(tmp_path, "another"), 1, 2)
    assert sorted(rows(sources.parquet(tmp_path))) == [1, 2]


def test_a_file_gets_its_name_only_when_it_is_whole_and_synced(tmp_path, monkeypatch):
    sink, seen = opened(tmp_path), []
    fsync, link = os.fsync, os.link

    def synced(fd):
        seen.append(("sync", os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def watched(aside, final):
        seen.append(("link", aside))
        assert pq.read_table(aside)["id"].to_pylist() == [1]
        assert ds.dataset(tmp_path).files == []
        link(aside, final)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", watched)
    write(sink, 1, 1)
    aside = seen[0][1]
    assert Path(aside).name.startswith(".part-00000001-")
    assert seen == [("sync", aside), ("link", aside), ("sync", str(tmp_path))]


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def refused(aside, final):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    for _ in range(2):
        write(opened(tmp_path), 1, 1)
    assert rows(sources.parquet(tmp_path)) == [1]
    assert asides(tmp_path) == []


def test_what_the_dead_left_is_cleared_and_the_living_are_not(tmp_path):
    write(opened(tmp_path), 1, 1)
    (name,) = os.listdir(tmp_path)
    dead = tmp_path / f".{name}.dead"
    other = tmp_path / ".part-00000001-0123456789abcdef.parquet.dead"  # of another scope: its own life clears it
    for aside in (dead, other):
        aside.write_bytes(b"half a fi")
    with (tmp_path / f".{name}.alive").open("wb") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        opened(tmp_path)
        assert sorted(asides(tmp_path)) == sorted([other.name, f".{name}.alive"])
    opened(tmp_path)
    assert asides(tmp_path) == [other.name]
    assert rows(sources.parquet(tmp_path)) == [1]


def test_what_is_wrong_with_the_target_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(DefinitionError, match="is a file; give a folder"):
        sinks.parquet(tmp_path / "file")
    late = sinks.parquet(tmp_path / "late")
    (tmp_path / "late").write_text("")
    for sink in (sinks.parquet(tmp_path / "file" / "out"), late):
        with pytest.raises(ConnectorError, match="a file is in the place of the folder"):
            sink.open(SCOPE)
    with pytest.raises(OptionError, match="take one of zstd, snappy, none"):
        sinks.parquet(tmp_path, compression="gzip")  # type: ignore[arg-type]

    out = tmp_path / "out"
    sink = opened(out)
    for code, hint in [(errno.ENOSPC, "make room"), (errno.EACCES, "must be allowed to write")]:

        def fail(fd, code=code):
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fail)
            with pytest.raises(ConnectorError, match=rf"part-00000001-.*{os.strerror(code)}; .*{hint}"):
                write(sink, 1, 1)
        assert os.listdir(out) == []  # and no half of it
    write(sink, 1, 1)
    assert rows(sources.parquet(out)) == [1]


def test_a_disk_that_is_full_for_real(tmp_path, monkeypatch):
    """What os.write says, not what a test makes of it: /dev/full has no room."""
    sink = opened(tmp_path)
    real = os.open
    monkeypatch.setattr(
        "logline.connectors.parquet_sink.os.open",
        lambda path, flags, *more: real("/dev/full" if ".part" in path else path, os.O_RDWR),
    )
    with pytest.raises(ConnectorError, match="No space left on device; make room"):
        write(sink, 1, 1)


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
def test_compression(tmp_path, compression):
    write(opened(tmp_path, compression=compression), 1, *range(100))
    (name,) = os.listdir(tmp_path)
    used = pq.read_metadata(tmp_path / name).row_group(0).column(0).compression
    assert used == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


def test_a_batch_without_rows_is_a_file_too(tmp_path):
    write(opened(tmp_path), 1)
    assert pq.read_table(tmp_path).num_rows == 0
