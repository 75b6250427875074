"""Handwritten digits: a small conv net, fixed cases, and a decision rule that knows when two scores are a tie."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from amptui import Case, Project, Update

NEAR_TIE = 3e-4  # how far apart the two best scores of the case "near-tie" are in FP32


class ConvNet(nn.Module):
    """Images of shape (n, 1, 8, 8) in 0…1 to ten scores (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32 * 2 * 2, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(x.flatten(1))


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Forward and loss only: amptui does autocast, scaling, backward, clipping and the step."""
    images, labels = batch
    return F.cross_entropy(model(images), labels)


def project(review_below: float = 0.5) -> Project:
    """The project that amptui judges; gaps between the two best scores below `review_below` go to a person."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # layers this small are fastest on one thread
    images, labels = load_images()
    train, held_out = slice(0, 1400), slice(1400, None)

    model = ConvNet()
    train_briefly(model, images[train], labels[train])  # so that the decisions below mean something

    def batches() -> DataLoader:
        """A fresh loader with its own seed: the same batches in the same order every time."""
        order = torch.Generator().manual_seed(0)
        dataset = TensorDataset(images[train], labels[train])
        return DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True, generator=order)

    def decide(scores: Tensor) -> tuple[str, float]:
        """The digit with the best score, or "review" where the best two are too close to call.

        The second value is the margin: how far the gap is from the threshold, so from a changed decision.
        """
        best, second = scores.float().flatten().topk(2).values.tolist()
        gap = best - second
        if not gap >= review_below:  # written so that NaN goes to review as well
            return "review", review_below - gap
        return str(scores.argmax().item()), gap - review_below

    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    update = Update(
        optimizer=optimizer,
        loss=loss,
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40),
        clip_norm=1.0,
    )
    return Project(
        name="digits",
        model=model,
        updates=[update],
        batches=batches,
        cases=make_cases(model, images[held_out], labels[held_out]),
        decide=decide,
        quality=accuracy,
    )


def accuracy(rows: list) -> float:
    """Share of right decisions among the cases that have a right answer."""
    known = [row for row in rows if row.target is not None]
    return sum(row.decision == str(int(row.target)) for row in known) / len(known)


def make_cases(model: nn.Module, images: Tensor, labels: Tensor) -> list[Case]:
    """Two ordinary images of each digit, four images that no one meant to send, and a tie between two digits."""
    cases = []
    for digit in range(10):
        for n, index in enumerate((labels == digit).nonzero().flatten()[:2].tolist()):
            cases.append(Case(id=f"digit-{digit}-{n}", inputs=images[index : index + 1], target=digit))

    single_pixel = torch.zeros(1, 1, 8, 8)
    single_pixel[0, 0, 3, 4] = 1.0
    noise = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    cases += [
        Case(id="blank", inputs=torch.zeros(1, 1, 8, 8), tag="edge"),
        Case(id="saturated", inputs=torch.ones(1, 1, 8, 8), tag="edge"),
        Case(id="single-pixel", inputs=single_pixel, tag="edge"),
        Case(id="noise", inputs=noise, tag="edge"),
    ]

    a = images[labels == 3][:1]
    b = images[labels == 8][:1]
    cases.append(Case(id="near-tie", inputs=near_tie(model, a, b), tag="boundary"))
    return cases


@torch.no_grad()
def near_tie(model: nn.Module, a: Tensor, b: Tensor) -> Tensor:
    """A blend of two images whose two classes score within `NEAR_TIE` of each other, found by bisection in FP32."""
    class_a, class_b = model(a).argmax().item(), model(b).argmax().item()
    low, high = 0.0, 1.0  # share of b: at 0 class a wins, at 1 class b does
    for _ in range(40):
        middle = (low + high) / 2
        scores = model(torch.lerp(a, b, middle))[0]
        if scores[class_a] - scores[class_b] > NEAR_TIE:
            low = middle
        else:
            high = middle
    return torch.lerp(a, b, low)


def load_images() -> tuple[Tensor, Tensor]:
    """The 1797 images that come with scikit-learn, (1797, 1, 8, 8) in 0…1, and their labels; nothing is downloaded."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("this sample needs scikit-learn: pip install 'amptui[samples]'") from error
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    return images, torch.from_numpy(digits.target).long()


def train_briefly(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Six epochs in FP32 (well under a second): stands for the checkpoint that you would load here."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(6):
        for index in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            loss(model, [images[index], labels[index]]).backward()
            optimizer.step()
