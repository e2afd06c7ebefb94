"""The data of Nexmark: persons, auctions and bids of an online auction house. An event is a batch of records.

Of 50 records one is a person, three are auctions and 46 are bids, as in the benchmark's own generator; so are the hot
auctions and bidders, which get every other bid. Records come in the order in which they are made. Their times rise,
but a record may be up to `DISORDER` behind those before it. The same size, seed and rate make the same data. The
column `extra`, with which the benchmark pads its records, is left out.

>>> data = generate(500)
>>> {name: table.num_rows for name, table in data.items()}
{'persons': 10, 'auctions': 30, 'bids': 460}
>>> data == generate(500), data == generate(500, seed=2)
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa

Data = dict[str, pa.Table]
"""The tables `persons`, `auctions` and `bids`."""

BEGIN = datetime(2026, 2, 28, 23, 59, 30, tzinfo=UTC)  # just before midnight: query 15 counts by day
DISORDER = timedelta(seconds=2)
LONGEST = timedelta(seconds=20)
"""How long an auction is open at most."""

PER_ROUND, AUCTIONS_PER_ROUND = 50, 3
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
RECENT_AUCTIONS, RECENT_PERSONS = 20, 20
STATES = {"OR": "Portland", "ID": "Boise", "CA": "Palo Alto", "WA": "Seattle", "AZ": "Phoenix", "WY": "Cheyenne"}
FIRST_NAMES = ("Ada", "Boris", "Chen", "Dora", "Emil", "Farah", "Goran", "Hana")
LAST_NAMES = ("Abe", "Bell", "Cruz", "Dietz", "Ewing", "Fox", "Gupta")
CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

TIME = pa.timestamp("us", "UTC")
SCHEMAS = {
    "persons": pa.schema(
        {
            "id": pa.int64(),
            "name": pa.string(),
            "email": pa.string(),
            "city": pa.string(),
            "state": pa.string(),
            "date_time": TIME,
        }
    ),
    "auctions": pa.schema(
        {
            "id": pa.int64(),
            "item": pa.string(),
            "initial_bid": pa.int64(),
            "reserve": pa.int64(),
            "date_time": TIME,
            "expires": TIME,
            "seller": pa.int64(),
            "category": pa.int64(),
        }
    ),
    "bids": pa.schema(
        {
            "auction": pa.int64(),
            "bidder": pa.int64(),
            "price": pa.int64(),
            "channel": pa.string(),
            "date_time": TIME,
        }
    ),
}


def generate(records: int, *, seed: int = 1, rate: int = 50) -> Data:
    """So many records in all, of which `rate` happen in a second of event time."""
    rows: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in SCHEMAS}
    for kind, row in _rows(records, Random(seed), rate):
        rows[kind].append(row)
    return {kind: _table(schema, rows[kind]) for kind, schema in SCHEMAS.items()}


def _table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def _rows(records: int, rnd: Random, rate: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    persons = auctions = 0
    for n in range(records):
        at = BEGIN + timedelta(seconds=n / rate) - DISORDER * rnd.random()
        place = n % PER_ROUND
        if place == 0:
            yield "persons", _person(FIRST_ID + persons, at, rnd)
            persons += 1
        elif place <= AUCTIONS_PER_ROUND:
            yield "auctions", _auction(FIRST_ID + auctions, at, _recent(persons, RECENT_PERSONS, rnd), rnd)
            auctions += 1
        else:
            auction = _recent(auctions, RECENT_AUCTIONS, rnd)
            yield "bids", (auction, _recent(persons, RECENT_PERSONS, rnd), _price(rnd), rnd.choice(CHANNELS), at)


def _person(person: int, at: datetime, rnd: Random) -> tuple[Any, ...]:
    first, last, state = rnd.choice(FIRST_NAMES), rnd.choice(LAST_NAMES), rnd.choice(list(STATES))
    return person, f"{first} {last}", f"{first}.{last}{person}@example.com".lower(), STATES[state], state, at


def _auction(auction: int, at: datetime, seller: int, rnd: Random) -> tuple[Any, ...]:
    initial = _price(rnd)
    expires = at + LONGEST * rnd.uniform(0.1, 1)
    category = FIRST_CATEGORY + rnd.randrange(CATEGORIES)
    return auction, f"item {auction}", initial, initial + _price(rnd), at, expires, seller, category


def _recent(count: int, recent: int, rnd: Random) -> int:
    """The id of one of the last `recent`; every other time a hot one, which stays so for a while."""
    last = max(count - 1, 0)
    if rnd.random() < 0.5:
        return FIRST_ID + last - last % recent
    return FIRST_ID + max(last - rnd.randrange(recent), 0)


def _price(rnd: Random) -> int:
    """In cents: from a dollar to a million, with as many between 1 and 10 as between 10 and 100."""
    return round(10 ** rnd.uniform(0, 6) * 100)
