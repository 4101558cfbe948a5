"""Ctrl-C, pressed by a test; and how long a test waits for what must happen."""

import signal
import sys
import time
from threading import main_thread

from nwcompile.threads import raise_if_canceled

PATIENCE_S = 600.0  # A wait ends after so long only if the test fails: no test depends on how fast the machine is.
WAITING = ("wait", "_wait_for_tstate_lock")  # The functions of `threading` in which a thread waits.


def press_ctrl_c() -> None:
    """From any thread, once the main one waits: just before that it would hear it when the wait ends.

    Raises KeyboardInterrupt in a thread of `at_once` that nobody waits for: Ctrl-C was pressed before.
    """
    main = main_thread().ident
    while sys._current_frames()[main].f_code.co_name not in WAITING:
        raise_if_canceled()
        time.sleep(0.001)
    time.sleep(0.05)
    signal.pthread_kill(main, signal.SIGINT)
