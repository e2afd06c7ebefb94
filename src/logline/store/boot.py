"""Which boot of which machine this is."""

from __future__ import annotations

import contextlib
from pathlib import Path


def boot_id() -> str:
    """Which boot of which machine this is; a power cut makes another one."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""
