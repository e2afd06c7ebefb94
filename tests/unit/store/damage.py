"""Opens a damaged journal in a process of its own and says what came of it: a C library is behind it.

python -m tests.unit.store.damage FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from logline.errors import LogError
from logline.names import OUT, InstanceName, Ssn
from logline.store.lmdb.folder import LmdbStore


def main() -> None:
    try:
        store = LmdbStore(Path(sys.argv[1]))
        journal = store.claim(InstanceName("orders"))
        last = journal.image.head(OUT).last
        found = store.read(InstanceName("orders")).events(OUT, Ssn(0), limit=1 << 20, max_bytes=1 << 40)
        for event in found:
            event.payload.validate(full=True)
        values = [event.payload["n"].to_pylist() for event in found]
    except LogError as error:
        print("refused", str(error)[:60])
        return
    right = [list(range(n, n + 50)) for n in range(1, last + 1)]
    print("right" if values == right and len(found) == last else f"WRONG {last} {len(found)}", last)


if __name__ == "__main__":
    main()
