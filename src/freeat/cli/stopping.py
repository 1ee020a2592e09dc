"""SIGTERM and SIGINT as a request to stop at the next batch, with everything saved."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Whether a signal came, and which exit code answers it."""

    def __init__(self) -> None:
        self.signal = 0

    def __call__(self) -> bool:
        return self.signal != 0

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 1


@contextmanager
def stop_on_signal() -> Iterator[StopRequest]:
    """Inside, the first SIGTERM or SIGINT becomes a request to stop; the second interrupts as usual."""
    request = StopRequest()

    def hear(number: int, frame: FrameType | None) -> None:
        if request.signal:
            raise KeyboardInterrupt
        request.signal = number

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
