"""The log's folder: what the log is, who runs it, and where its journals lie.

log.json       identity: format, log id, durability, the machine's boot (for `process`); written once
graph.json     what the pipeline is (R14)
mark.json      only of a copy, and of a log that has moved (`store/marks.py`)
lease, lease.json   who runs it: a lock that dies with its process, and its name
journals/      one LMDB environment per instance
bells/         sockets          status/     one small file per group
mail/          commands and reports, one file per box
notes/         crash hints: what a life after a crash leaves for the next one; removed when a life ends in order
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from logline.errors import LogError, LogInUse
from logline.graph.record import from_plain, to_plain
from logline.names import BellName, BoxName, InstanceName, LogId
from logline.store.bells import Bells, BellSocket, clear
from logline.store.boot import boot_id
from logline.store.channels import HandOver
from logline.store.descriptors import disown, own
from logline.store.encoding import FORMAT
from logline.store.lmdb.compaction import compact
from logline.store.lmdb.crash_hints import FileCrashHint
from logline.store.lmdb.environment import Environment, acquire, release, release_if_last
from logline.store.lmdb.files import NO_ROOM, LogFull, read_json, read_passing, write_aside, write_passing
from logline.store.lmdb.folders import make_folder, sync_folder
from logline.store.lmdb.identity import LogIdentity
from logline.store.lmdb.journal import LmdbJournal, LmdbReader
from logline.store.lmdb.mail import FileMailbox
from logline.store.lmdb.restore import MARK, read_mark, restore, write_mark
from logline.store.marks import Mark, check_may_run
from logline.store.rows import Row
from logline.store.seam import Compacted, Holder, Lying, Meta, StoreTraits, Worth

Durability = Literal["disk", "process"]
_PARTS = ("journals", "bells", "status")


def is_log(folder: Path) -> bool:
    """Whether there is a log in that folder."""
    with _usable(folder):
        return (folder / "log.json").exists()


@contextlib.contextmanager
def _usable(folder: Path) -> Iterator[None]:
    """What the system refuses is said with the folder's name."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise LogFull.at(folder, error.strerror) from error
        where = "" if error.filename in (None, str(folder)) else f" at {error.filename}"
        raise LogError(
            f"the log can't be in {folder} ({error.strerror or error}{where}): "
            "give it a folder that this process may make, read and write, as in 'lmdb:orders.log'"
        ) from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Nobody else makes a log there meanwhile: of two ids one would be gone, and its run with it."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # a child that was forked meanwhile may have the file too
        os.close(file)


def _is_beginning(path: Path) -> bool:
    """Whether it may lie in a folder before there is a log: a kill may have come before `log.json` was written."""
    if path.name in _PARTS:
        return path.is_dir() and not any(path.iterdir())
    return path.name == MARK or path.name.startswith(".")


class LmdbLease:
    """The right to run the pipeline: `lease.json` names the holder, and a lock that the kernel lets go when its
    process dies says whether it lives. Each run has a lock of its own, so that a takeover has one at once."""

    def __init__(self, folder: Path, run: str, identity: LogIdentity, *, takeover: bool) -> None:
        self._note = folder / "lease.json"
        self.run = run
        self._identity = identity
        self._path = folder / f"lease.{run}"
        self._file: int | None = None
        with _turn(folder / "lease"):
            holder = read_passing(self._note)
            if holder is not None and not takeover and _locked(folder / f"lease.{holder['run']}"):
                raise LogInUse(f"the log {folder} is in use by run {holder['run']} (process {holder['pid']})")
            if holder is not None:
                _say_taken(folder / f"lease.{holder['run']}", run)
            try:
                self._file = own(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
                fcntl.flock(self._file, fcntl.LOCK_EX)
                write_aside(self._note, {"run": run, "pid": os.getpid()})
            except BaseException:  # on a full disk, say
                self._path.unlink(missing_ok=True)
                self._let_go()
                raise
            for stale in folder.glob("lease.*"):
                if stale not in (self._note, self._path) and not _locked(stale):
                    stale.unlink(missing_ok=True)
            _clear_away(folder)

    def held(self) -> bool:
        """Whether no other run has taken it. LogError if there is no such log any more."""
        if self._file is None:
            return False
        self._identity.check()
        holder = read_passing(self._note)
        if holder is None and not os.fstat(self._file).st_size:
            raise self._identity.gone()  # it is being removed, and this file was the first to go
        return (holder or {}).get("run") == self.run

    def release(self) -> None:
        """Gives the lease up, so that another run can begin."""
        if self._file is None:
            return
        try:
            self._identity.check()
            with contextlib.suppress(FileNotFoundError), _turn(self._note.with_name("lease")):
                if (read_passing(self._note) or {}).get("run") == self.run:
                    self._note.unlink(missing_ok=True)
                self._path.unlink(missing_ok=True)
                self._let_go()
                _clear_away(self._note.parent)
        except LogError:
            pass  # the log is gone, and what is there now has another lease
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            disown(self._file)
            os.close(self._file)
            self._file = None


def _say_taken(path: Path, by: str) -> None:
    """Writes into the lock of a run that is taken over. That run has the file open: it can tell this from a log
    that is gone."""
    with contextlib.suppress(FileNotFoundError), path.open("r+") as file:
        file.write(by)


def _clear_away(folder: Path) -> None:
    """What is left of processes that were killed: files that `write_aside` had begun, and bells. A life that was
    fenced off may have hung up its own after the next one, and nobody takes that down."""
    clear(folder / "bells")
    for path in folder.rglob(".*"):
        *_, pid, _thread = path.name.split(".")
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _turn(path: Path) -> Iterator[None]:
    """One process (or thread) at a time decides who holds the lease."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _locked(path: Path) -> bool:
    """Whether a living process holds this lock. Who may only read can ask, too."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(file)


class LmdbStore:
    """All journals of one pipeline, under one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        durability: Durability | None = None,
        create: bool = True,
        log_id: LogId | None = None,
    ) -> None:
        """`log_id` is that of a log which is copied to here; a fresh one has an id of its own."""
        self.folder = folder.absolute()
        with _usable(self.folder):
            about = read_json(self.folder / "log.json")
            if about is None:
                if not create:
                    raise LogError(f"there is no log in {folder}")
                about = self._create(durability or "disk", log_id or LogId(uuid.uuid4().hex[:12]))
        self._check(about)
        if log_id not in (None, about["log_id"]):
            raise LogError(f"there is a log in {folder}: give the copy a folder of its own")
        if durability not in (None, about["durability"]):
            raise LogError(
                f"the log in {folder} was made with durability={about['durability']!r} and can't be changed to "
                f"{durability!r}: say durability={about['durability']!r}, or begin with a fresh log"
            )
        self._identity = LogIdentity(self.folder)
        self.log_id = LogId(about["log_id"])
        self.durability: Durability = about["durability"]
        self.traits = StoreTraits("host", frozenset({"commit"} if self.durability == "disk" else ()))
        self.fresh = HandOver()
        self._bells = Bells(self.folder / "bells")
        self._envs: dict[InstanceName, Environment] = {}
        self._readers: dict[InstanceName, LmdbReader] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._pid = os.getpid()

    def _create(self, durability: Durability, log_id: LogId) -> dict[str, Any]:
        make_folder(self.folder)
        with _alone(self.folder):
            made = read_json(self.folder / "log.json")
            if made is not None:
                return made  # by somebody who began at the same moment
            if not all(map(_is_beginning, self.folder.iterdir())):
                raise LogError(f"{self.folder} is not empty and holds no log: give the log a folder of its own")
            self.folder.chmod(0o700)
            for name in _PARTS:
                (self.folder / name).mkdir(exist_ok=True, mode=0o700)
            about = {"format": FORMAT, "log_id": log_id, "durability": durability, "boot": boot_id()}
            write_aside(self.folder / "log.json", about)
        return about

    def _check(self, about: Mapping[str, Any]) -> None:
        if about.get("format") != FORMAT:
            raise LogError(
                f"the log in {self.folder} has format {about.get('format')}, this version of Logline reads {FORMAT}: "
                "finish the run with the version that began it, or begin with a fresh log"
            )
        if about["durability"] == "process" and about["boot"] != boot_id():
            raise LogError(
                f"the log in {self.folder} has durability 'process', and the machine has been started anew since: "
                "what was not on disk may be lost. Begin with a fresh log; durability='disk' survives this"
            )

    # ---- journals -------------------------------------------------------------------------------------

    def _path(self, instance: InstanceName) -> Path:
        return self.folder / "journals" / instance.replace("/", "~")

    def claim(self, instance: InstanceName) -> LmdbJournal:
        """Fences older lives (R10)."""
        self._identity.check()
        path, disk = self._path(instance), self.durability == "disk"
        env = acquire(path, sync=disk)
        try:
            if disk:  # before the first commit: it would be gone with the name of its file
                sync_folder(path)
                sync_folder(path.parent)
            env.own()
            return LmdbJournal(env, instance)
        except BaseException:
            release(env)
            raise

    def read(self, instance: InstanceName) -> LmdbReader:
        """A reader of the instance's journal; a journal that nobody has claimed is empty. LogError if another log has
        taken the place of this one."""
        self._identity.check()
        with self._lock:
            reader = self._readers.get(instance)
            if reader is not None:
                return reader
            reader = self._readers[instance] = LmdbReader(lambda: self._find(instance), instance, self.read)
            return reader

    def _find(self, instance: InstanceName) -> Environment | None:
        with self._lock:
            found = self._envs.get(instance)
            path = self._path(instance)
            if found is None and (path / "data.mdb").exists():
                found = self._envs[instance] = acquire(path, sync=self.durability == "disk")
            return found

    def instances(self) -> list[InstanceName]:
        """The instances that have a journal."""
        self._identity.check()
        found = sorted(p.name for p in (self.folder / "journals").iterdir() if (p / "data.mdb").exists())
        return [InstanceName(name.replace("~", "/")) for name in found]

    def compact(self, worth: Worth) -> Iterator[tuple[InstanceName, Compacted]]:
        """Writes the files of journals anew where that is worth it, one after the other. For the holder of the lease,
        while nobody lives. Readers of this store open their files again."""
        for instance in self.instances():
            with self._lock:
                env = self._envs.get(instance)
                # Readers of this store look through it: it is theirs until it is closed.
                if env is not None and release_if_last(env):
                    del self._envs[instance]
            found = compact(self._path(instance), worth)
            if found is not None:
                yield instance, found

    # ---- around them ----------------------------------------------------------------------------------

    def ring(self, whom: BellName) -> None:
        """Rings the bell, if somebody listens; a ring may be lost."""
        self._bells.ring(whom)

    def on_bell(self, whom: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Calls `heard` on a thread of its own when the bell rings; returns a function that ends this."""
        return self._bells.listen(whom, heard)

    def bell(self, instance: InstanceName) -> BellSocket:
        """A bell for a loop that waits for it without a thread."""
        return self._bells.bell(instance)

    def mail(self, box: str) -> FileMailbox:
        """The box of that name."""
        return FileMailbox(self.folder / "mail", box, lambda: self._bells.ring(BoxName(box)), self._identity.check)

    def crash_hint(self, instance: InstanceName) -> FileCrashHint:
        """The crash hint of that instance."""
        self._identity.check()
        return FileCrashHint(self.folder / "notes" / instance.replace("/", "~"))

    def lease(self, run: str, *, takeover: bool = False) -> LmdbLease:
        """Takes the lease; raises LogInUse if another run holds it and there is no `takeover`."""
        self._identity.check()
        check_may_run(self.mark())
        with _usable(self.folder):
            return LmdbLease(self.folder, run, self._identity, takeover=takeover)

    def running(self) -> Holder | None:
        """The run that `lease.json` names, if the lock shows that its process lives."""
        self._identity.check()
        note = read_passing(self.folder / "lease.json")
        if note is None or not _locked(self.folder / f"lease.{note['run']}"):
            return None
        return Holder(note["run"], note["pid"])

    def meta(self) -> Meta | None:
        """The pipeline this log belongs to."""
        self._identity.check()
        found = read_json(self.folder / "graph.json")
        return None if found is None else Meta(found["pipeline"], from_plain(found["graph"]))

    def set_meta(self, meta: Meta) -> None:
        """Keeps what the log knows of the pipeline, for the next run."""
        self._identity.check()
        write_aside(self.folder / "graph.json", {"pipeline": meta.pipeline, "graph": to_plain(meta.graph)})

    def mark(self) -> Mark | None:
        """What the log is besides itself."""
        return read_mark(self.folder)

    def set_mark(self, mark: Mark | None) -> None:
        """Replaces what the log is besides itself; None takes it away."""
        self._identity.check()
        write_mark(self.folder, mark)

    def restore(self, instance: InstanceName, rows: Iterable[Row], events: Iterable[Lying]) -> None:
        """Writes a whole journal."""
        path = self._path(instance)
        env = acquire(path, sync=self.durability == "disk")
        try:
            restore(env, rows, events)
            sync_folder(path)
            sync_folder(path.parent)
        finally:
            release(env)

    def put_status(self, name: str, status: bytes) -> None:
        """Writes a small file; never waits for the disk."""
        self._identity.check()
        write_passing(self.folder / "status" / f"{name.replace('/', '~')}.json", status)

    def statuses(self) -> Mapping[str, bytes]:
        """Reads the small files."""
        self._identity.check()
        found: dict[str, bytes] = {}
        for path in sorted((self.folder / "status").glob("*.json")):
            with contextlib.suppress(FileNotFoundError):  # gone since the folder was listed
                found[path.stem.replace("~", "/")] = path.read_bytes()
        return found

    def __del__(self) -> None:
        # A Run and its Log go when the user's names for them go; nobody calls close() on those. In a fork they are
        # the parent's.
        if not getattr(self, "_closed", True) and self._pid == os.getpid():
            self.close()

    def close(self) -> None:
        """Lets go of everything; the log stays."""
        with self._lock:
            self._readers.clear()
            envs, self._envs = self._envs, {}
        for env in envs.values():
            release(env)
        if not self._closed:
            self._closed = True
            self._bells.close()
            self._identity.close()
