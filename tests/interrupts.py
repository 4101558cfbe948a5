"""Ctrl-C, pressed by a test."""

import signal
from threading import main_thread


def press_ctrl_c() -> None:
    """From any thread: the main one hears it, also while it waits."""
    signal.pthread_kill(main_thread().ident, signal.SIGINT)
