"""A GAN on handwritten digits: two updates that share one loss scale, two micro-batches to a window."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amptui import Case, Project, Update

LATENT = 16


class Generator(nn.Module):
    """Latent vectors (n, 16) to images (n, 1, 8, 8) in 0…1."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(LATENT, 32 * 4 * 4)
        self.norm = nn.BatchNorm2d(32)
        self.upsample = nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)
        self.paint = nn.Conv2d(16, 1, 3, padding=1)

    def forward(self, latent: Tensor) -> Tensor:
        x = F.relu(self.norm(self.project(latent).unflatten(1, (32, 4, 4))))
        x = F.relu(self.upsample(x))
        return torch.sigmoid(self.paint(x))


class Discriminator(nn.Module):
    """Images (n, 1, 8, 8) to one logit each, (n, 1): above zero means real."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 4, stride=2, padding=1)
        self.head = nn.Linear(32 * 2 * 2, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = F.leaky_relu(self.conv1(images), 0.2)
        x = F.leaky_relu(self.conv2(x), 0.2)
        return self.head(x.flatten(1))


def discriminator_loss(model: dict[str, nn.Module], real: Tensor) -> Tensor:
    """Real images should score high, generated ones low."""
    latent = torch.randn(len(real), LATENT, device=real.device)
    # detach: this update trains the discriminator only, so nothing flows back into the generator.
    fake = model["generator"](latent).detach()
    on_real, on_fake = model["discriminator"](real), model["discriminator"](fake)
    # The form with logits is safe in half precision; on CUDA, autocast refuses binary_cross_entropy after a sigmoid.
    loss_on_real = F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
    loss_on_fake = F.binary_cross_entropy_with_logits(on_fake, torch.zeros_like(on_fake))
    return loss_on_real + loss_on_fake


def generator_loss(model: dict[str, nn.Module], real: Tensor) -> Tensor:
    """Generated images should score high. The discriminator's gradients that this leaves are cleared by its update."""
    latent = torch.randn(len(real), LATENT, device=real.device)
    on_fake = model["discriminator"](model["generator"](latent))
    return F.binary_cross_entropy_with_logits(on_fake, torch.ones_like(on_fake))


def generate(model: dict[str, nn.Module], latent: Tensor) -> dict[str, Tensor]:
    """What is recorded and compared for a case: the images of its fixed latent vectors."""
    return {"images": model["generator"](latent)}


def project() -> Project:
    """The project that amptui judges."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # layers this small are fastest on one thread
    images = load_images()
    model = {"generator": Generator(), "discriminator": Discriminator()}

    adam = {"lr": 5e-4, "betas": (0.5, 0.999)}
    discriminator = Update(
        name="discriminator",
        optimizer=torch.optim.Adam(model["discriminator"].parameters(), **adam),
        loss=discriminator_loss,
        accumulate=2,
    )
    generator = Update(
        name="generator",
        optimizer=torch.optim.Adam(model["generator"].parameters(), **adam),
        loss=generator_loss,
        accumulate=2,
        every=2,  # one generator update for two of the discriminator
    )
    return Project(
        name="gan",
        model=model,
        updates=[discriminator, generator],
        batches=list(images[torch.randperm(len(images))].split(16)[:96]),  # 48 windows of two micro-batches
        cases=make_cases(),
        outputs=generate,
    )


def make_cases() -> list[Case]:
    """Fixed latent vectors: random ones, and those that random numbers hardly ever reach."""
    fixed = torch.Generator().manual_seed(1)
    cases = [Case(id=f"latent-{n}", inputs=torch.randn(4, LATENT, generator=fixed)) for n in range(6)]
    a, b = torch.randn(2, LATENT, generator=fixed)
    return [
        *cases,
        Case(id="zero", inputs=torch.zeros(1, LATENT), tag="edge"),
        Case(id="far-out", inputs=torch.full((1, LATENT), 4.0), tag="edge"),
        Case(
            id="between-two",
            inputs=torch.stack([torch.lerp(a, b, t) for t in (0.0, 0.25, 0.5, 0.75, 1.0)]),
            tag="boundary",
        ),
    ]


def load_images() -> Tensor:
    """The 1797 images that come with scikit-learn, (1797, 1, 8, 8) in 0…1; nothing is downloaded."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("this sample needs scikit-learn: pip install 'amptui[samples]'") from error
    return torch.from_numpy(load_digits().images).float().unsqueeze(1) / 16
