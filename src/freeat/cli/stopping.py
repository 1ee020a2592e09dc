"""SIGTERM and SIGINT as a wish to stop at the next batch, with everything saved."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopWish:
    """Whether a signal came, and which exit code answers it."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self) -> bool:
        return self.signal != 0

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 1


@contextmanager
def stop_wish() -> Iterator[StopWish]:
    """Inside, the first SIGTERM or SIGINT becomes a wish; the second interrupts as usual."""
    wish = StopWish()

    def hear(number: int, frame: FrameType | None) -> None:
        if wish.signal:
            raise KeyboardInterrupt
        wish.signal = number

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
