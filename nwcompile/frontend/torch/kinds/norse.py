"""norse."""

KINDS = ()
