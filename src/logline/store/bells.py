"""Bells as Unix datagrams in a folder: that of an embedded log, or one of this host. A bell may be lost: it costs a
poll interval, nothing else.

The kernel allows 108 bytes for a socket's path, and the path of a log can be longer. So both sides go through an open
descriptor of the folder. Whoever listens last for an instance gets its rings; a ring that nobody hears is fine.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from logline.names import BellName
from logline.store.descriptors import disown, own


class Bells:
    """Rings the bells of a log, and listens for those of this process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True, mode=0o700)
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._out.setblocking(False)
        self._listeners: dict[str, _Listener] = {}
        self._lock = threading.Lock()

    def _path(self, instance: BellName) -> str:
        return f"/proc/self/fd/{self._fd}/{instance.replace('/', '~')}"

    def ring(self, instance: BellName) -> None:
        """Rings the bell. The ring is lost if nobody listens or the socket's buffer is full."""
        self.send(instance, b"!")

    def send(self, whom: BellName, message: bytes) -> None:
        """Rings with a few words, for those who read them (`BellSocket.messages`)."""
        with contextlib.suppress(OSError):
            self._out.sendto(message, self._path(whom))

    def hangs(self, whom: BellName) -> bool:
        """Whether somebody listens, or did when he was killed."""
        return os.path.exists(self._path(whom))

    def listen(self, instance: BellName, heard: Callable[[], None]) -> Callable[[], None]:
        """Calls `heard` on a thread of its own whenever the bell rings; returns a function that ends this."""
        with self._lock:
            listener = self._listeners.get(instance)
            if listener is None:
                listener = self._listeners[instance] = _Listener(self._path(instance))
            listener.calls.append(heard)
        return lambda: self._unlisten(instance, heard)

    def bell(self, instance: BellName, closed: Callable[[], None] | None = None) -> BellSocket:
        """A bell for a loop that waits for it beside other things. `closed` is called when that has closed it."""
        return BellSocket(self._path(instance), closed)

    def _unlisten(self, instance: BellName, heard: Callable[[], None]) -> None:
        with self._lock:
            listener = self._listeners.get(instance)
            if listener is None or heard not in listener.calls:
                return
            listener.calls.remove(heard)
            if not listener.calls:
                del self._listeners[instance]
                listener.stop()

    def close(self) -> None:
        """Ends all listening, and removes the sockets from the folder."""
        with self._lock:
            for listener in self._listeners.values():
                listener.stop()
            self._listeners.clear()
        self._out.close()
        os.close(self._fd)


def clear(folder: Path) -> None:
    """Removes the bells of processes that were killed: nobody hears them any more."""
    if not folder.exists():
        return
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(fd):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe, contextlib.suppress(FileNotFoundError):
                try:
                    probe.connect(f"/proc/self/fd/{fd}/{name}")
                except ConnectionRefusedError:
                    os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)


class BellSocket:
    """The receiving end. Nobody else is heard under this path while it is the last that was bound to it."""

    def __init__(self, path: str, closed: Callable[[], None] | None = None) -> None:
        self._path = path
        self._closed = closed
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        own(self._socket.fileno())
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # of a life that is over
            self._socket.bind(path)
            self._inode = os.stat(path).st_ino
        except OSError:
            disown(self._socket.fileno())
            self._socket.close()
            raise

    def fileno(self) -> int:
        """The socket's descriptor: readable when the bell has rung."""
        return self._socket.fileno()

    def hear(self) -> None:
        """Takes all rings that have come."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(16)

    def messages(self) -> list[bytes]:
        """Takes all rings that have come, with what they say."""
        found: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self._socket.recv(256))
        return found

    def hangs(self) -> bool:
        """Whether a ring still reaches this bell."""
        try:
            return os.stat(self._path).st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Closes the socket, and removes its path if no other bell has taken its place."""
        if self.hangs():  # not the one of a newer listener; asked before the inode can be another file's
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        disown(self._socket.fileno())
        self._socket.close()
        if self._closed is not None:
            self._closed()


class _Listener:
    """A bell with a thread that calls."""

    def __init__(self, path: str) -> None:
        self.calls: list[Callable[[], None]] = []
        self._bell = BellSocket(path)
        self._over = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="logline-bell", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with select.epoll() as poll:
            poll.register(self._over, select.EPOLLIN)
            poll.register(self._bell.fileno(), select.EPOLLIN)
            while not any(number == self._over for number, _ in poll.poll()):
                self._bell.hear()
                for heard in tuple(self.calls):
                    heard()
        os.close(self._over)

    def stop(self) -> None:
        os.eventfd_write(self._over, 1)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._bell.close()
