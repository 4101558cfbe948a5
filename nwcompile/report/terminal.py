"""Terminal: a report as text, from the content of report.json."""

from nwcompile.families import load_parts
from nwcompile.report.host import host_lines
from nwcompile.report.json.neurobench import neurobench_lines
from nwcompile.report.legalization import legalization_lines
from nwcompile.report.quantization import quantization_lines
from nwcompile.report.text import fit_table, layer_table, profile_lines, unknown_lines, verdict_lines


def render_text(doc: dict) -> str:
    """Format a report: verdict, fit, layers, changes, quantization, profile, NeuroBench, warnings."""
    notes = [
        *([doc["multi_spike"]["text"]] if doc["multi_spike"] else []),
        *([doc["multicast"]["text"]] if doc["multicast"] else []),
        *([doc["io"]["text"]] if doc["io"] else []),
        *host_lines(doc["host"]),
        *([doc["dropped"]["text"]] if doc["dropped"] else []),
        *(text for part in load_parts("report") if doc[part.KEY] for text in doc[part.KEY]["text"]),
        *([doc["time"]["sync"]["text"]] if doc["time"] and doc["time"]["sync"] else []),
        *unknown_lines(doc),
        *(f"warning: {text}" for text in doc["warnings"]),
    ]
    tables = fit_table(doc), layer_table(doc), legalization_lines(doc), quantization_lines(doc)
    blocks = [verdict_lines(doc), *tables, profile_lines(doc), neurobench_lines(doc), notes]
    return "\n\n".join("\n".join(block) for block in blocks if block)
