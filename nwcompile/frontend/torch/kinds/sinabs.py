"""sinabs."""

KINDS = ()
