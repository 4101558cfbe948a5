"""Read the files of a command line: models, programs and chips (load.py), samples and labels (data.py), steps of a
stream (stream.py), spike logs of a chip (spike_log.py)."""
