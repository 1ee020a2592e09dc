"""Any algorithm of freeat in a 🤗 Accelerate loop, in one process or several.

Accelerate owns the device, the precision, the loader's shares and the backward pass. The model itself is not prepared:
the learner's process group sums the gradients, because an attack's passes must not reach a parallel module's hooks.

    pip install accelerate
    accelerate launch examples/accelerate_loop.py
"""

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import freeat
from freeat.learner.distributed import ProcessGroup


def main(epochs: int = 6, batch: int = 64, mixed_precision: str = "no") -> freeat.RobustGap:
    accelerator = Accelerator(mixed_precision=mixed_precision)
    processes = ProcessGroup(rank=accelerator.process_index, size=accelerator.num_processes)
    data = freeat.load_data("digits")
    images = TensorDataset(*data.train.batch(torch.arange(len(data.train))))
    order = torch.Generator().manual_seed(0)
    torch.manual_seed(0)  # the same weights in every process
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model = model.to(accelerator.device)
    loader, optimizer = accelerator.prepare(
        DataLoader(images, batch_size=batch // processes.size, shuffle=True, generator=order),
        torch.optim.AdamW(model.parameters(), lr=3e-3),
    )

    def forward(x: Tensor) -> Tensor:
        with accelerator.autocast():
            return model(x)

    ball = freeat.L2(0.5)
    algorithm = freeat.Free(m=4, ball=ball)
    learner = freeat.Learner(
        model, optimizer, processes=processes, forward=forward, backward=accelerator.backward
    )
    for epoch in range(epochs):
        for x, y in loader:
            # this process holds its rows of the global batch
            learner.expect(len(x) * processes.size, len(x) * processes.rank)
            record = algorithm.step(learner, x, y)
            processes.average_buffers(model)
        accelerator.print(f"epoch {epoch + 1}: loss {record.losses.mean():.3f}")

    found = freeat.robust_gap(model, data, data, ball, attack="pgd-10")
    accelerator.print(found)
    return found


if __name__ == "__main__":
    main()
