"""Free-TRADES in a loop of your own: any model, any torch optimizer, any loader; then the robust gap.

python examples/own_loop.py
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import freeat

EPOCHS, BATCH = 6, 64


def main() -> freeat.RobustGap:
    data = freeat.load_data("digits")
    train, test = (
        TensorDataset(*images.batch(torch.arange(len(images)))) for images in (data.train, data.test)
    )
    loader = DataLoader(train, batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    ball = freeat.L2(0.5)
    algorithm = freeat.Free(m=4, ball=ball, objective=freeat.Trades())
    learner = freeat.Learner(model, torch.optim.AdamW(model.parameters(), lr=3e-3))
    for epoch in range(EPOCHS):
        for x, y in loader:
            record = algorithm.step(learner, x, y)  # four weight updates on this batch
        print(f"epoch {epoch + 1}: loss {record.losses.mean():.3f} after {learner.updates} updates")

    found = freeat.robust_gap(model, loader, DataLoader(test, batch_size=BATCH), ball, attack="pgd-10")
    print(found)
    return found


if __name__ == "__main__":
    main()
