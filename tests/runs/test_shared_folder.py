"""A run folder that several processes use at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from freeat.files.locks import LEASE, Busy, Lease, LeaseLost, leased
from freeat.runs import run
from freeat.training.records import Record
from small_runs import carry_out, outcome


def test_a_run_that_another_process_finished_meanwhile_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def too_late(folder: Path) -> Iterator[Lease]:
        monkeypatch.setattr(run, "leased", leased)
        others.append(carry_out(tmp_path))
        before.update({path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")})
        with leased(folder) as lease:
            yield lease

    others: list[dict[str, Any]] = []
    before: dict[Path, int] = {}
    monkeypatch.setattr(run, "leased", too_late)
    assert carry_out(tmp_path) == others[0]
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_busy_folder_is_refused_before_data_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*args: Any) -> None:
        raise AssertionError("assembled for nothing")

    monkeypatch.setattr(run, "assemble", load)
    with leased(tmp_path / "run"), pytest.raises(Busy, match="in use by another process"):
        carry_out(tmp_path / "run")


def test_losing_a_lease_does_not_change_the_other_run(tmp_path: Path) -> None:
    """A process that was suspended for long finds its folder taken over, and writes nothing more."""

    class LeaseTaker:
        def step(self, update: int, total: int, loss: float | None) -> None:
            if update == 8:
                (tmp_path / "run" / LEASE).unlink()
                carry_out(tmp_path / "run")

        def record(self, record: Record) -> None: ...

    with pytest.raises(LeaseLost, match="taken over by another process"):
        carry_out(tmp_path / "run", callback=LeaseTaker())
    carry_out(tmp_path / "undisturbed")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "undisturbed")
