"""Deterministic runs leave new memory unfilled, and give the process its own setting back."""

from typing import Any

import pytest
import torch

from freeat.compute.machine import arithmetic

settings: Any = torch.utils.deterministic


def _fail_inside() -> None:
    with arithmetic(threads=torch.get_num_threads(), deterministic=True):
        assert torch.are_deterministic_algorithms_enabled()
        assert not settings.fill_uninitialized_memory
        raise RuntimeError("stop")


@pytest.mark.parametrize("before", [True, False])
def test_new_memory_is_left_unfilled_inside_only(before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "fill_uninitialized_memory", before)
    with pytest.raises(RuntimeError, match="stop"):
        _fail_inside()
    assert settings.fill_uninitialized_memory is before
