"""Tasks with an identity, each run once by any number of processes that share a store."""

from freeat.errors import InputError, unknown_name
from freeat.tasks.scheduler import Backend, EndedTask, NoProgress, Progress, Task, TaskOutcome, run_tasks

BACKENDS = ("local", "ray")

__all__ = [
    "BACKENDS",
    "Backend",
    "EndedTask",
    "NoProgress",
    "Progress",
    "Task",
    "TaskOutcome",
    "make_backend",
    "run_tasks",
]


def make_backend(
    name: str = "local",
    *,
    threads: int = 1,
    device: str = "auto",
    jobs: int | None = None,
    address: str | None = None,
    gpus_per_run: float | None = None,
) -> Backend:
    """Where tasks run: processes of this machine (``local``), or a cluster (``ray``).

    Args:
        name: ``local`` or ``ray``.
        threads: The cores that a task uses.
        device: The device that tasks compute on.
        jobs: The number of processes; for ``local`` only.
        address: The address of the cluster; for ``ray`` only.
        gpus_per_run: The GPUs that a run reserves, at most 1; by default 1 if there are GPUs and ``device`` uses them.
    """
    if gpus_per_run is not None and not 0 <= gpus_per_run <= 1:
        raise InputError(
            f"--gpus-per-run {gpus_per_run:g}: a run uses one GPU or a part of it; "
            "for one run on several, use torchrun with `freeat train`"
        )
    match name:
        case "local":
            from freeat.tasks.local import LocalBackend, visible_gpus

            if address is not None:
                raise InputError(f"--address {address} is for --backend ray")
            gpus = visible_gpus(device) if gpus_per_run != 0 else ()
            return LocalBackend(workers=jobs, threads=threads, gpus=gpus, gpus_per_run=gpus_per_run or 1.0)
        case "ray":
            from freeat.tasks.ray import RayBackend

            if jobs is not None:
                raise InputError(f"--jobs {jobs} is for --backend local: Ray fills the cluster")
            return RayBackend(address=address, threads=threads, device=device, gpus_per_run=gpus_per_run)
    raise unknown_name("backend", name, BACKENDS)
