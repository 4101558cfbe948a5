"""The export formats of a program."""

from nwcompile.families import load_parts
from nwcompile.report.export import sanafe, xylo

OF_FAMILIES = {name: pair for part in load_parts("export") for name, pair in part.FORMATS.items()}
# By name: a function that renders the files of a program and a sample (or None), and one that returns a note on them.
EXPORTS = OF_FAMILIES | {
    "sanafe": (sanafe.sanafe_files, sanafe.sanafe_note),
    "xylo": (xylo.xylo_files, xylo.xylo_note),
}
