"""Ctrl-C, pressed by a test."""

import signal
import time
from threading import main_thread


def press_ctrl_c() -> None:
    """From any thread: the main one hears it as it waits; just before that it would hear it when the wait ends."""
    time.sleep(0.05)
    signal.pthread_kill(main_thread().ident, signal.SIGINT)
