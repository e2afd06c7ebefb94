"""A log on a server that only takes TLS, with a password that is in a file."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pyarrow as pa
import pytest
from tests.waiting import until

import logline as ll
from logline.errors import LogError
from logline.store.address import find_store

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
pytestmark = pytest.mark.skipif(
    not BINARIES or shutil.which("openssl") is None,
    reason="there is no PostgreSQL with TLS (the tests' own is built without) or no openssl: install postgresql",
)
PASSWORD = "hunter2"


class Secured:
    """A server with a certificate of its own, and what a client needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority, self.passwords = folder / "authority.crt", folder / "passwords"
        self.data = folder / "data"
        self._user: dict[str, Any] = {"user": "postgres"} if os.getuid() == 0 else {}
        folder.chmod(0o755)
        self.data.mkdir(mode=0o700)
        if self._user:
            shutil.chown(self.data, "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._certify("authority", "authority")
        self._certify("localhost", "server")
        (folder / "first").write_text(PASSWORD)
        (folder / "first").chmod(0o644)
        self._do("initdb", "-D", self.data, "-U", "ada", "-A", "scram-sha-256", "--pwfile", folder / "first")
        for name in ("server.crt", "server.key"):
            shutil.copy(folder / name, self.data / name)
            (self.data / name).chmod(0o600)
            if self._user:
                shutil.chown(self.data / name, "postgres")
        (self.data / "pg_hba.conf").write_text("hostssl all all all scram-sha-256\n")
        settings = [
            "ssl=on",
            "listen_addresses=localhost",
            f"port={self.port}",
            "unix_socket_directories=",
            "fsync=off",
        ]
        command = [str(BINARIES[-1]), "-D", str(self.data), *(part for one in settings for part in ("-c", one))]
        quiet = subprocess.DEVNULL
        self._server = subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd="/", **self._user)
        self.passwords.write_text(f"localhost:{self.port}:*:ada:{PASSWORD}\n")
        self.passwords.chmod(0o600)

    def _do(self, program: str, *given: object) -> None:
        command = [str(BINARIES[-1].with_name(program)), *map(str, given)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **self._user)

    def _certify(self, subject: str, name: str) -> None:
        """A certificate by the authority; its own is by itself."""
        key, made = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN={subject}",
        ]
        if name == "server":
            command += ["-CA", str(self.authority), "-CAkey", str(self.folder / "authority.key")]
            command += ["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=CA:FALSE"]
        subprocess.run([*command, "-keyout", key, "-out", made], check=True, capture_output=True)

    def address(self, authority: Path) -> str:
        """It has no password."""
        return (
            f"postgresql://ada@localhost:{self.port}/postgres?sslmode=verify-full"
            f"&sslrootcert={quote(str(authority), safe='')}&passfile={quote(str(self.passwords), safe='')}"
        )

    def answers(self) -> bool:
        try:
            psycopg.connect(self.address(self.authority)).close()
        except psycopg.OperationalError:
            return False
        return True

    def end(self) -> None:
        self._server.terminate()
        self._server.wait()


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    folder = Path(tempfile.mkdtemp(prefix="tls", dir="/tmp"))
    made = Secured(folder)
    try:
        until(made.answers)
        yield made
    finally:
        made.end()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_run_over_tls(secured: Secured) -> None:
    p = ll.Pipeline("sales")
    p.source("orders", ll.sources.batches([pa.table({"n": [1, 2]})])).sink("store", ll.sinks.collect())
    address = f"{secured.address(secured.authority)}&log=sales"
    run = p.run(address, engine="processes")  # its processes read the same files
    assert run.result("store")["n"].to_pylist() == [1, 2]
    assert PASSWORD not in repr(run.log)
    with psycopg.connect(secured.address(secured.authority)) as db:
        assert db.execute("select ssl from pg_stat_ssl where pid = pg_backend_pid()").fetchone() == (True,)


def test_a_server_of_another_authority_is_not_trusted(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logline.store.postgres.store.OPENING", 0.0)
    with pytest.raises(LogError, match="certificate verify failed"):
        find_store(f"{secured.address(secured.folder / 'server.crt')}&log=sales")
