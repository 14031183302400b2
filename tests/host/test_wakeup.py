"""The requests that the main thread sleeps for, which signals and other threads make."""

from __future__ import annotations

import signal
import threading

from plughost._runtime.wakeup import StopRequests


def test_a_signal_that_another_thread_takes_wakes_the_main_thread() -> None:
    """The system may give a signal to any thread, while Python runs its handler in the main thread only."""
    requests = StopRequests()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: requests.add())
    try:
        threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)).start()
        assert requests.wait(1, 60)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_request_before_the_sleep_is_not_lost() -> None:
    """Whoever asked before somebody waits has asked; the wait for a second one goes on."""
    requests = StopRequests()
    requests.add()
    assert requests.wait(1, 60)
    threading.Thread(target=requests.add).start()
    assert requests.wait(2, 60)


def test_a_sleep_ends_with_its_time() -> None:
    """One that too few wake says that nothing came of it."""
    requests = StopRequests()
    requests.add()
    assert not requests.wait(2, 0.01)
