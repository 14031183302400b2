"""Turns: in order, and in no longer a queue than is worked off soon."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from plughost_library_auth.turns import TooBusy, Turns


def _queue(turns: Turns, seconds: float, most: int) -> list[int]:
    """Fill a queue behind one that has its turn; return in which order those that came one by one had theirs."""
    done: list[int] = []

    def take(number: int) -> None:
        with turns.turn(seconds):
            done.append(number)

    with ThreadPoolExecutor(most) as pool, turns.turn(seconds):
        for number in range(most):
            pool.submit(take, number)
            until = time.monotonic() + 30
            while turns.waiting <= number and time.monotonic() < until:
                pass
        with pytest.raises(TooBusy), turns.turn(seconds):
            pass
    take(most)
    return done


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 14), (0.2, 10), (0.5, 4), (3.0, 2)])
def test_the_queue_is_what_can_be_done_in_two_seconds(seconds: float, most: int) -> None:
    """So many wait and have their turn in order; one more is refused at once, and let in when there is room again."""
    assert _queue(Turns(1), seconds, most) == list(range(most + 1))


def test_who_waited_for_too_long_is_refused() -> None:
    """It leaves the queue, so that the next ones have their turn."""
    turns = Turns(1, patience=0.01)
    with turns.turn(0.2):
        with pytest.raises(TooBusy), turns.turn(0.2):
            pass
        assert turns.waiting == 0
    with turns.turn(0.2):
        pass


def test_a_turn_that_fails_is_over() -> None:
    """Whatever goes wrong in it, the next one comes."""
    turns = Turns(1)
    for _ in range(2):
        with pytest.raises(ValueError, match="wrong"), turns.turn(0.2):
            raise ValueError("wrong")
