"""Stop requests from signals and other threads wake the main thread."""

from __future__ import annotations

import resource
import signal
import threading

from plughost._runtime.wakeup import StopRequests


def test_a_signal_received_by_another_thread_wakes_the_main_thread() -> None:
    """The system may deliver a signal to any thread, but Python runs its handler only in the main thread."""
    requests = StopRequests()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: requests.add())
    try:
        threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)).start()
        assert requests.wait(1, 60)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_request_before_the_wait_is_not_lost() -> None:
    """A request counts even if nobody waits yet; the wait for a second one continues."""
    requests = StopRequests()
    requests.add()
    assert requests.wait(1, 60)
    threading.Thread(target=requests.add).start()
    assert requests.wait(2, 60)


def test_a_wait_ends_at_its_timeout() -> None:
    """A wait with too few requests returns False."""
    requests = StopRequests()
    requests.add()
    assert not requests.wait(2, 0.01)


def test_a_wait_needs_no_descriptor() -> None:
    """Else a host that has none left would end at SIGTERM, during `shutdown_delay`, with requests in flight."""
    requests = StopRequests()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert not requests.wait(1, 0.01)
        threading.Thread(target=requests.add).start()
        assert requests.wait(1, 60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
