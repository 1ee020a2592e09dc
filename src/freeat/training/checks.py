"""Warnings about settings that are allowed but seldom intended; memory."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from freeat.data import Images
from freeat.learner import Learner
from freeat.learner.distributed import SINGLE_PROCESS
from freeat.units import radius_text

CROSSING = 2.0
"""A step of this many radii leads from anywhere in a ball to its boundary or beyond."""


def setting_warnings(
    *,
    batch_size: int,
    n: int,
    steps: Iterable[tuple[str, float | None, float]] = (),
) -> tuple[str, ...]:
    """Warnings about a batch larger than the sample, and attack steps (name, α or None, ε) of wrong scale."""
    warnings = []
    if batch_size > n:
        warnings.append(
            f"batch size {batch_size} exceeds the {n} training images: every batch is the whole set."
        )
    warnings += [
        f"the {what} α = {radius_text(alpha)} is more than twice its radius ε = {radius_text(eps)}: every step "
        "crosses the whole ball and ends on its boundary."
        for what, alpha, eps in steps
        if alpha is not None and alpha > CROSSING * eps
    ]
    return tuple(warnings)


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory is exhausted, on any device."""
    text = str(error).lower()
    return (
        isinstance(error, torch.OutOfMemoryError)
        or "can't allocate memory" in text
        or "out of memory" in text
    )


def on_device_if_it_fits(images: Images, device: torch.device) -> Images:
    """The images on the device where they take at most half of its free memory; others, and streams, where they are."""
    if images.streamed:
        return images
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if images.nbytes > free / 2:
            return images
    return images.to(device)


def memory_remedy(learner: Learner, images: Images, batch_size: int) -> str:
    """The message of an exhausted memory: which micro-batch fits.

    Tries half the images, a quarter, … in a pass with both gradients.
    """
    _leave_processes(learner)
    tried = learner.micro_batch or batch_size
    size = tried // 2
    while size >= 1 and not _fits(learner, images, size):
        size //= 2
    remedy = f"--micro-batch {size} fits" if size else "not even one image fits, so use a smaller --model"
    return f"out of memory with {tried} images at a time: {remedy}"


def _leave_processes(learner: Learner) -> None:
    """Let passes exchange nothing: the training ends, and the other processes may have memory enough, and do not wait.

    New parameters share the memory of the weights without the hooks that sum gradients, which wait for the rest of the
    backward pass that failed. In evaluation mode batch norms share no statistics.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    learner.processes = SINGLE_PROCESS
    own = {p: nn.Parameter(p.detach(), requires_grad=p.requires_grad) for p in learner.model.parameters()}
    for layer in learner.model.modules():
        for name, p in layer.named_parameters(recurse=False, remove_duplicate=False):
            setattr(layer, name, own[p])
        if isinstance(layer, nn.SyncBatchNorm):
            layer.eval()


def _fits(learner: Learner, images: Images, size: int) -> bool:
    def mean_logit(delta: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return learner.logits(x + delta).mean(-1)

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    try:
        x, y = learner.to_device(*images.batch(torch.arange(min(size, len(images)))))
        learner.expect(len(x), 0)
        learner.both_gradients(mean_logit, torch.zeros_like(x), x, y)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        return False
    except ValueError:  # a batch norm has no statistics of one image
        return False
    finally:
        learner.model.zero_grad(set_to_none=True)
    return True
