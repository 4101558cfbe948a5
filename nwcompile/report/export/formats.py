"""The export formats of a program."""

from nwcompile.report.export import ranc, sanafe, xylo

# By name: a function that renders the files of a program and a sample (or None), and one that returns a note on them.
EXPORTS = {
    "ranc": (ranc.ranc_files, ranc.ranc_note),
    "sanafe": (sanafe.sanafe_files, sanafe.sanafe_note),
    "xylo": (xylo.xylo_files, xylo.xylo_note),
}
