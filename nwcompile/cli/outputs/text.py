"""Text: format results for a terminal."""

import json
from collections.abc import Iterable, Sequence


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format rows under a header, with columns two spaces apart; numbers right-aligned, texts left-aligned."""
    lines = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    right = [len(lines) > 1 and all(_is_number(line[i]) for line in lines[1:]) for i in range(len(header))]

    def fill(line):
        cells = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True))
        return "  ".join(cells).rstrip()

    return "\n".join(map(fill, lines))


def as_json(value) -> str:
    """Format as JSON; NumPy values become plain ones."""
    return json.dumps(value, indent=1, default=lambda v: v.tolist() if hasattr(v, "tolist") else str(v))


def format_ranges(indices: Iterable[int]) -> str:
    """Format sorted indices as `0-63, 70`."""
    parts: list[list[int]] = []
    for i in indices:
        if parts and i == parts[-1][1] + 1:
            parts[-1][1] = i
        else:
            parts.append([i, i])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).lstrip("-").isdigit()
