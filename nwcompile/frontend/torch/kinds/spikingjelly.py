"""spikingjelly."""

KINDS = ()
