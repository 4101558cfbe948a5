"""Ctrl-C sent by a test, and the longest time that a test waits for an event."""

import signal
import sys
import time
from threading import main_thread

from nwcompile.threads import raise_if_canceled

PATIENCE_S = 600.0  # Timeout of waits; only a failing test reaches it, so no test depends on the speed of the machine.
WAITING = ("wait", "_wait_for_tstate_lock")  # Functions of `threading` in which a thread waits.


def press_ctrl_c() -> None:
    """Send SIGINT to the main thread, from any thread, once the main thread waits.

    A signal sent just before that would be handled only when the wait ends. Raises KeyboardInterrupt if the enclosing
    `at_once` was canceled, which means that Ctrl-C was sent before.
    """
    main = main_thread().ident
    while sys._current_frames()[main].f_code.co_name not in WAITING:
        raise_if_canceled()
        time.sleep(0.001)
    time.sleep(0.05)
    signal.pthread_kill(main, signal.SIGINT)
