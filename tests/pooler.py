"""A real PgBouncer in transaction mode, before the server of the tests."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from tests.postgres import Server
from tests.waiting import until

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
"""None if it is not installed."""
SETTINGS = """
[databases]
* = host={server} user=postgres
[pgbouncer]
pool_mode = transaction
default_pool_size = {size}
listen_addr =
listen_port = 6432
unix_socket_dir = {folder}
auth_type = any
logfile = {folder}/log
pidfile = {folder}/pid
"""


@contextmanager
def pooler(server: Server, size: int = 4) -> Iterator[str]:
    """The address of one that has `size` sessions on the server, which its clients share."""
    assert PGBOUNCER is not None
    folder = Path(tempfile.mkdtemp(prefix="pgb", dir="/tmp"))  # the path of a socket must be short
    (folder / "ini").write_text(SETTINGS.format(server=server.folder, folder=folder, size=size))
    as_user = []
    if os.getuid() == 0:  # it refuses to run as root
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        server.folder.chmod(0o755)
        as_user = ["-u", "nobody"]
    command = [PGBOUNCER, "-q", *as_user, str(folder / "ini")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"postgresql://postgres@/postgres?host={folder}&port=6432"
    try:
        until(lambda: _answers(address))
        yield address
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True
