"""Disease progression from ten measurements in raw units: a normalisation whose intermediate does not fit FP16."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui import Case, Project, Update

FP16_MAX = 65504.0
TARGET_MEAN, TARGET_STD = 152.0, 77.0  # of the 442 patients; the target runs from 25 to 346


class DirectionAndLength(nn.Module):
    """Each patient's measurements (n, 10) as a vector of length one, followed by the length taken out: (n, 11)."""

    def forward(self, x: Tensor) -> Tensor:
        # Autocast runs einsum in half precision. The sum of squares is about 72,000 here; FP16 ends at 65,504.
        length = torch.einsum("nf,nf->n", x, x).sqrt().unsqueeze(1)
        return torch.cat([x / length, length], dim=1)


class Regressor(nn.Module):
    """Measurements in raw units (n, 10) to the standardised disease progression (n, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.normalise = DirectionAndLength()
        self.standardise = nn.BatchNorm1d(11)
        self.hidden = nn.Linear(11, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.standardise(self.normalise(x))
        return self.head(F.silu(self.hidden(x)))


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean squared error of the standardised progression."""
    x, y = batch
    return F.mse_loss(model(x).float(), (y - TARGET_MEAN) / TARGET_STD)


def outputs(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """What is recorded and compared: the progression in the target's own units."""
    return {"prediction": model(x).float() * TARGET_STD + TARGET_MEAN}


def project() -> Project:
    """The project that amptui judges."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # layers this small are fastest on one thread
    x, y = load_patients()
    train, held_out = slice(0, 352), slice(352, None)

    model = Regressor()
    train_briefly(model, x[train], y[train])

    # A list of batches is run whole, in this order: four epochs of eleven batches.
    batches = [(x[index], y[index]) for _ in range(4) for index in torch.randperm(352).split(32)]
    return Project(
        name="diabetes",
        model=model,
        updates=[Update(optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3), loss=loss)],
        batches=batches,
        cases=make_cases(x[held_out], y[held_out]),
        outputs=outputs,
    )


def make_cases(x: Tensor, y: Tensor) -> list[Case]:
    """Held-out patients by their sum of squares: every eighth, the two extremes, and the two around FP16's limit."""
    order = x.square().sum(1).sort()
    last = len(x) - 1
    within = int((order.values < 0.98 * FP16_MAX).sum()) - 1  # 2 % away, so that rounding cannot move it across
    beyond = int((order.values <= 1.02 * FP16_MAX).sum())
    named = {0: "shortest", last: "longest", within: "within-fp16", beyond: "beyond-fp16"}
    tags = {0: "edge", last: "edge", within: "boundary", beyond: "boundary"}
    cases = []
    for rank, patient in enumerate(order.indices.tolist()):
        if rank in named or rank % 8 == 4:
            cases.append(
                Case(
                    id=named.get(rank, f"patient-{patient}"),
                    inputs=x[patient : patient + 1],
                    target=y[patient : patient + 1],
                    tag=tags.get(rank, "ordinary"),
                )
            )
    return cases


def load_patients() -> tuple[Tensor, Tensor]:
    """The 442 patients that come with scikit-learn in raw units, (442, 10), and their progression, (442, 1)."""
    try:
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise ImportError("this sample needs scikit-learn: pip install 'amptui[samples]'") from error
    data = load_diabetes(scaled=False)
    return torch.from_numpy(data.data).float(), torch.from_numpy(data.target).float().unsqueeze(1)


def train_briefly(model: nn.Module, x: Tensor, y: Tensor) -> None:
    """Thirty epochs in FP32 (under a second): stands for the checkpoint that you would load here."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(30):
        for index in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            loss(model, (x[index], y[index])).backward()
            optimizer.step()
