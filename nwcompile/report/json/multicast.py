"""How spikes reach several cores, as plain values for report.json: single messages, and trees, side by side."""

from nwcompile.cost.summary import Summary
from nwcompile.ir.chip import Chip
from nwcompile.report.text import grouped

WORDS = {"unicast": "single messages", "tree": "trees"}


def collect_multicast(chip: Chip, s: Summary) -> dict | None:
    """What a sample sends either way; None where messages cannot fork, or all ways are the same."""
    rows = {}
    for kind, sent in s.sending.items():
        rows[kind] = {"messages_per_sample": sent.messages, "hops_per_sample": sent.hops,
                      "hottest_link_flits": sent.hottest}  # fmt: skip
    if "tree" not in rows or rows["unicast"] == rows["tree"]:
        return None
    own = chip.noc.multicast
    other = "tree" if own == "unicast" else "unicast"
    return {"sent_as": own, **rows, "text": f"sent as {_words(own, rows)}; as {_words(other, rows)}"}


def _words(kind: str, rows: dict) -> str:
    row = rows[kind]
    hottest = f"at most {row['hottest_link_flits']:.3g} flits over a link in a step"
    return (
        f"{WORDS[kind]}: {grouped(row['messages_per_sample'])} messages and {grouped(row['hops_per_sample'])} hops a "
        f"sample, {hottest}"
    )
