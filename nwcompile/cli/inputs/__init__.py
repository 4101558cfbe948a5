"""What a command line names, read: models, programs and chips (load.py), samples and labels (data.py), steps of a
stream (stream.py), spikes that a chip has logged (spike_log.py)."""
