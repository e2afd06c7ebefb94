"""Folders that outlive a power cut: a new entry of a folder is on disk once the folder itself is synced."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def make_folder(path: Path) -> None:
    """Makes the folder, and those above it that are missing. Returns when their names are on disk."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in missing:
        with suppress(PermissionError):  # one may be allowed to write there and not to look around
            sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Returns when the entries of the folder are on disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
