"""Memory: the number of bytes that this process may still allocate, and an error for work that needs more.

The limits are those of Linux: the machine's available memory and swap, the control groups of the process (version 2 or
1, as set by containers and cluster schedulers), and its own limits (`ulimit -v`, `ulimit -d`).
"""

import ctypes
import resource
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from nwcompile.errors import NotEnoughMemoryError

ERROR_CODE = "NW1009"
PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")
KIB = 1024  # The unit of /proc/meminfo and /proc/self/status.
# Files of a control group, by version: its limit, its use, and the names of reclaimable file pages in its use.
GROUP_FILES = (
    ("memory.max", "memory.current", ("active_file", "inactive_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
)
# Limits of the process, and the key of /proc/self/status that counts towards each.
OWN_LIMITS = ((resource.RLIMIT_AS, "VmSize", "ulimit -v"), (resource.RLIMIT_DATA, "VmData", "ulimit -d"))
SMALL_BYTES = 1 << 26  # Work that needs less starts without a check, which takes milliseconds on busy systems.
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Room(NamedTuple):
    """The bytes that this process may still allocate, and the name of the limit."""

    n_bytes: int
    limit: str


def measure_room() -> Room | None:
    """The room under the tightest limit of this process; None if the system reports no limit."""
    rooms = [*_machine_room(), *_groups_room(), *_process_room()]
    return min(rooms, default=None)


def verify_room(work: str, n_bytes: int, advice: Callable[[int], str]) -> None:
    """Raise NotEnoughMemoryError if this process may not allocate `n_bytes`, the least that `work` needs.

    `advice(n_bytes_left)` says what would fit.
    """
    left = measure_room() if n_bytes >= SMALL_BYTES else None
    if left is not None and n_bytes > left.n_bytes:
        give_back_heap()
        left = measure_room()
    if left is not None and n_bytes > left.n_bytes:
        raise NotEnoughMemoryError(
            f"{work} needs {bytes_text(n_bytes)} of memory or more, and this process may take "
            f"{bytes_text(left.n_bytes)} ({left.limit}); {advice(left.n_bytes)}"
        )


def give_back_heap() -> None:
    """Return freed memory, which the C library still holds, to the system."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # only glibc has it
        libc.malloc_trim(0)


def bytes_text(n_bytes: int) -> str:
    """Format a number of bytes as `3.2 GiB` or `640 MiB`."""
    size, unit = next(((size, unit) for size, unit in UNITS if n_bytes >= size), UNITS[-1])
    return f"{n_bytes / size:.3g} {unit}" if n_bytes < 1000 * size else f"{n_bytes / size:.0f} {unit}"


def _machine_room() -> list[Room]:
    table = _read_table(PROC / "meminfo")
    if "MemAvailable" not in table:
        return []
    return [Room(KIB * (table["MemAvailable"] + table.get("SwapFree", 0)), "what the machine has free, with its swap")]


def _groups_room() -> list[Room]:
    """The room under the control groups of the process and all groups above them, swap included."""
    swap = KIB * _read_table(PROC / "meminfo").get("SwapFree", 0)
    rooms = []
    for line in _read_lines(PROC / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        base = GROUPS / controllers
        # A container may see its own group as the root, so missing groups are skipped.
        for group in (base / path.strip("/"), *(base / path.strip("/")).parents):
            if group.is_relative_to(base):
                rooms += [
                    Room(left + swap, f"the limit of its control group, {name}") for left, name in _group_room(group)
                ]
    return rooms


def _group_room(group: Path) -> list[tuple[int, str]]:
    """The free bytes of a control group and the name of its limit; an empty list if it has no limit."""
    for limit, use, files in GROUP_FILES:
        numbers = [*_read_lines(group / limit), *_read_lines(group / use)]
        if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            cached = sum(_read_table(group / "memory.stat").get(name, 0) for name in files)
            return [(max(int(numbers[0]) - int(numbers[1]) + cached, 0), limit)]
    return []


def _process_room() -> list[Room]:
    used, rooms = _read_table(PROC / "self" / "status"), []
    for kind, counted, name in OWN_LIMITS:
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY and counted in used:
            rooms.append(Room(max(limit - KIB * used[counted], 0), name))
    return rooms


def _read_table(path: Path) -> dict[str, int]:
    """Read the integers of a file with lines `name: number kB`, by name."""
    words = (line.replace(":", " ").split() for line in _read_lines(path))
    return {row[0]: int(row[1]) for row in words if len(row) > 1 and row[1].isdecimal()}


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
