"""The formats that a program can be exported to."""

from nwcompile.report.export import ranc, sanafe, xylo

# By name: the files of a program in a folder, with the spikes of a sample or None, and what to say of them.
EXPORTS = {
    "ranc": (ranc.ranc_files, ranc.note),
    "sanafe": (sanafe.sanafe_files, sanafe.note),
    "xylo": (xylo.xylo_files, xylo.note),
}
