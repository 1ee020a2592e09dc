"""Where tasks are carried out: processes of this machine, or a Ray cluster."""

from freeat.errors import InputError, unknown_name
from freeat.tasks.scheduler import Pool

ENGINES = ("local", "ray")


def make_pool(
    engine: str = "local",
    *,
    threads: int = 1,
    device: str = "auto",
    jobs: int | None = None,
    address: str | None = None,
    gpus_per_run: float | None = None,
) -> Pool:
    """The engine of that name. ``jobs`` is for processes, ``address`` is for Ray.

    ``gpus_per_run``: by default one where there are GPUs and ``device`` lets the runs use them.
    """
    if gpus_per_run is not None and not 0 <= gpus_per_run <= 1:
        raise InputError(
            f"--gpus-per-run {gpus_per_run:g}: a run uses one GPU or a part of it; "
            "for one run on several, use torchrun with `freeat train`"
        )
    match engine:
        case "local":
            from freeat.tasks.local import LocalPool, visible_gpus

            if address is not None:
                raise InputError(f"--address {address} is for --engine ray")
            gpus = visible_gpus(device) if gpus_per_run != 0 else ()
            return LocalPool(workers=jobs, threads=threads, gpus=gpus, gpus_per_run=gpus_per_run or 1.0)
        case "ray":
            from freeat.tasks.ray import RayPool

            if jobs is not None:
                raise InputError(f"--jobs {jobs} is for --engine local: Ray fills the cluster")
            return RayPool(address=address, threads=threads, device=device, gpus_per_run=gpus_per_run)
    raise unknown_name("engine", engine, ENGINES)
