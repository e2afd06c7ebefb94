"""What lineage asks of a journal in PostgreSQL, for many events or sets at once: one round trip each.

Arrays of numbers go to the server, which looks each of them up in an index. `store/history.py` says what the answers
mean; here are the same look-ups as SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from logline.engine import codec
from logline.engine.events import Output
from logline.engine.history import Finished, Lone
from logline.engine.sets import Answer, own_id
from logline.names import ChannelName, PortName, Serial, Ssn
from logline.store.history import KEPT_ANSWERS, KEPT_SETS
from logline.store.layout import ANSWERS
from logline.store.members import BLOCK, DONE
from logline.store.pins import BLOCK as PIN_BLOCK
from logline.store.postgres.columns import escape, shape_of, unescape
from logline.store.postgres.dsn import piped
from logline.store.postgres.events import run_of, select_headers, tables_of
from logline.store.rows import Table

if TYPE_CHECKING:
    from psycopg import Connection

Made = Mapping[Serial, Sequence[tuple[PortName, Ssn]]]
_HEAD = "select last, base from raw_heads where instance = %s and port = %s"
_PINS = "select block, value from raw_pins where instance = %s and port = %s and block = any(%s::bigint[])"
_RUNS = (
    "select s.serial, r.* from unnest(%s::bigint[]) as s(serial) cross join lateral ("
    "select first_serial, channel, ssn, many from raw_runs where instance = %s and first_serial <= s.serial "
    "order by first_serial desc limit 1) r where s.serial < r.first_serial + r.many"
)
_RUN_EVENTS = (
    "select s.ssn, r.serial + s.ssn - r.first from unnest(%s::bigint[]) as s(ssn) cross join lateral ("
    "select first, serial, many from raw_run_events where instance = %s and of_channel = %s and first <= s.ssn "
    "order by first desc limit 1) r where s.ssn - r.first < r.many"
)


def _rows_of(table: Table[Any], column: str) -> str:
    shape = shape_of(table)
    key = ", ".join(f'"{part.name}"' for part in shape.key)
    where = f"instance = %s and {column} = any(%s::bigint[])"
    return f"select {shape.selected} from {shape.name} where {where} order by {key}"


def is_there(ssn: int, head: tuple[int, int], pinned: Mapping[int, int]) -> bool:
    """Whether an event is visible and not collected."""
    last, base = head
    return ssn <= last if ssn >= base else bool(pinned.get(ssn // PIN_BLOCK, 0) >> ssn % PIN_BLOCK & 1)


def headers(connection: Connection[Any], number: int, port: PortName, ssns: Sequence[Ssn]) -> list[Output | None]:
    """These events without their payload; None for one that is not in the log."""
    name, wanted = escape(port), sorted(set(ssns))
    blocks = sorted({ssn // PIN_BLOCK for ssn in wanted})
    with piped(connection):
        head = connection.execute(_HEAD, (number, name), binary=True)
        pins = connection.execute(_PINS, (number, name, blocks))
        runs = connection.execute(select_headers(number).encode(), {"port": name, "ssns": wanted}, binary=True)
        known, pinned, rows = head.fetchone(), {block: int(bits) for block, bits in pins}, runs.fetchall()
    found: dict[Ssn, Output] = {}
    if known is not None:
        for ssn, *row in rows:
            run = run_of(row)
            if ssn < run.end and is_there(ssn, known, pinned):
                found[ssn] = run.header(port, ssn)
    return [found.get(ssn) for ssn in ssns]


def insets(connection: Connection[Any], number: int, serials: Sequence[Serial]) -> dict[Serial, Finished]:
    """Those of these sets that a lineage scope keeps."""
    with piped(connection):
        kept = connection.execute(_rows_of(KEPT_SETS, "serial").encode(), (number, list(serials)), binary=True)
        runs = connection.execute(_RUNS, (list(serials), number), binary=True)
        sets, lone = kept.fetchall(), runs.fetchall()
    found: dict[Serial, Finished] = {}
    for serial, first, channel, ssn, many in lone:
        member = Lone(first, ChannelName(unescape(channel)), ssn, many).member(serial)
        found[serial] = Finished(serial, own_id(member), (member,))
    shape = shape_of(KEPT_SETS)
    for row in sets:
        (serial,), known = shape.read(row)
        found[serial] = Finished(serial, codec.decode(known.id), tuple(known.joined.members()))
    return found


def all_insets_of(
    connection: Connection[Any], number: int, channel: ChannelName, ssns: Sequence[Ssn]
) -> dict[Ssn, list[Serial]]:
    """The done sets with each of these events as a member."""
    found: dict[Ssn, set[Serial]] = {ssn: set() for ssn in ssns}
    name, blocks = escape(channel), sorted({ssn // BLOCK for ssn in ssns})
    shape = shape_of(DONE)
    query = (
        f"select {shape.selected} from raw_done where instance = %s and channel = %s and block = any(%s::bigint[])"
    )
    with piped(connection):
        done = connection.execute(query.encode(), (number, name, blocks), binary=True)
        runs = connection.execute(_RUN_EVENTS, (list(ssns), number, name), binary=True)
        rows, lone = done.fetchall(), runs.fetchall()
    for row in rows:
        (_, _, serial), known = shape.read(row)
        for _, first, many in known.joined(channel).each():
            for ssn in range(first, first + many):
                if ssn in found:
                    found[Ssn(ssn)].add(serial)
    for ssn, serial in lone:
        found[ssn].add(serial)
    return {ssn: sorted(serials) for ssn, serials in found.items()}


def all_answers(connection: Connection[Any], number: int, serials: Sequence[Serial]) -> dict[Serial, list[Answer]]:
    """The answers of each of these sets: of those that are due, then of those that are done and kept."""
    found: dict[Serial, list[Answer]] = {serial: [] for serial in serials}
    with piped(connection):
        asked = [
            (table, connection.execute(_rows_of(table, "of_set").encode(), (number, list(serials)), binary=True))
            for table in (ANSWERS, KEPT_ANSWERS)
        ]
        for table, cursor in asked:
            for row in cursor:
                (serial, _, _), answer = shape_of(table).read(row)
                found[serial].append(answer)
    return found


def all_made_from(
    connection: Connection[Any], number: int, serials: Sequence[Serial], ports: Sequence[PortName]
) -> Made:
    """What each of these sets put out on these ports. Of a set in a run that is found in the events themselves."""
    found: dict[Serial, list[tuple[PortName, Ssn]]] = {serial: [] for serial in serials}
    names = [escape(port) for port in ports]
    with piped(connection):
        kept = connection.execute(_rows_of(KEPT_SETS, "serial").encode(), (number, list(serials)), binary=True)
        runs = connection.execute(_RUNS, (list(serials), number), binary=True)
        sets, lone = kept.fetchall(), [row[0] for row in runs]
    shape = shape_of(KEPT_SETS)
    for row in sets:
        (serial,), known = shape.read(row)
        found[serial] = [(port, ssn) for port, ssn in known.made if port in ports]
    missing = sorted(set(lone) - {shape.read(row)[0][0] for row in sets})
    if not missing:
        return found
    with piped(connection):
        asked = [
            connection.execute(
                _search(number).encode(), {"port": name, "serials": missing, "instance": number}, binary=True
            )
            for name in names
        ]
        for port, cursor in zip(ports, asked, strict=True):
            for serial, ssn in cursor:
                found[serial].append((port, ssn))
    return found


def _search(instance: int) -> str:
    """The events of a port whose sets have these serials, found by halving: serials rise with the SSN. A set's events
    are between the first one with its serial, or a greater one, and the first one with a greater one. Takes port,
    serials, instance."""
    tables, columns = tables_of(instance), "first, many, heads"
    event = "port = %(port)s and part = 0 and kind = 0"
    before = " union all ".join(
        f"(select {columns} from {t} where {event} and first <= (low + high) / 2 order by first desc limit 1)"
        for t in tables
    )
    after = " union all ".join(
        f"(select {columns} from {t} where {event} and first > (low + high) / 2 order by first limit 1)"
        for t in tables
    )
    # The event in the middle, or the next one that lies there: the first of the next run.
    middle = (
        "select greatest(first, (low + high) / 2) as ssn, heads, first from ("
        f"(select * from ({before}) b order by first desc limit 1) union all "
        f"(select * from ({after}) a order by first limit 1)) r "
        "where first + many > (low + high) / 2 order by first limit 1"
    )
    beyond = "m.ssn is null or m.ssn > top or uint64(m.heads, 28 * (m.ssn - m.first)::int + 20) >= serial"
    low = " union all ".join(
        f"(select first from {t} where {event} and first <= f.low order by first desc limit 1)" for t in tables
    )
    runs = " union all ".join(
        f"select {columns} from {t} where {event} and first < u.low "
        f"and first >= coalesce((select max(first) from ({low}) l), f.low)"
        for t in tables
    )
    return (
        "with recursive "
        "top as (select last as top from raw_heads where instance = %(instance)s and port = %(port)s), "
        "search as (select serial, 1::bigint as low, top + 1 as high, top from top, ("
        "select unnest(%(serials)s::bigint[]) union select unnest(%(serials)s::bigint[]) + 1) as s(serial) union all "
        f"select serial, case when {beyond} then low else m.ssn + 1 end, "
        f"case when {beyond} then (low + high) / 2 else high end, top "
        f"from search left join lateral ({middle}) m on true where low < high), "
        "bound as materialized (select serial, low, top from search where low >= high) "
        "select f.serial, n.ssn from unnest(%(serials)s::bigint[]) as s(serial) "
        "join bound f on f.serial = s.serial join bound u on u.serial = s.serial + 1 "
        f"cross join lateral ({runs}) e "
        "cross join lateral generate_series(greatest(e.first, f.low), "
        "least(e.first + e.many - 1, u.low - 1, f.top)) as n(ssn) "
        "where uint64(e.heads, 28 * (n.ssn - e.first)::int + 20) = f.serial order by n.ssn"
    )
