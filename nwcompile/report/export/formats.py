"""The export formats of a program."""

from nwcompile.report.export import ranc, sanafe, xylo

# By name: a function that returns the files of a program, with the spikes of a sample or None, and one that returns a
# note about them.
EXPORTS = {
    "ranc": (ranc.ranc_files, ranc.note),
    "sanafe": (sanafe.sanafe_files, sanafe.note),
    "xylo": (xylo.xylo_files, xylo.note),
}
