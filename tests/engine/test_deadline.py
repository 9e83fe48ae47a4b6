import math
import threading

from kbqa.engine.deadline import held


def test_a_lock_is_held_under_a_deadline_without_end() -> None:
    lock = threading.Lock()
    with held(lock, math.inf, "the lock"):
        assert lock.locked()
    assert not lock.locked()
