"""Updates are counted as the plain loop takes them: per optimizer, fused or not, whole windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from amptui import Policy, Project, Scaler, Update
from amptui.engine.course import Course
from amptui.findings.judgement import UpdateCounts
from tests.engine.projects import Guarded, guarded, opened


def counted(project: Project, folder: Path, policy: Policy) -> tuple[dict[str, UpdateCounts], Guarded, Course]:
    live = opened(project, folder)
    course = Course(tuple(update.name for update in live.updates))
    left = guarded(live, policy)
    for record in left.records:
        course.note(record)
    return {counts.name: counts for counts in course.counts()}, left, course


def data(weights: list[float], seed: int = 5) -> list[tuple[Tensor, Tensor, float]]:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator)
    return [(x, y, weight) for weight in weights]


def distance(output: Tensor, target: Tensor) -> Tensor:
    return ((output.float() - target) ** 2).mean()


#: A weight that overflows float16 at scale 4096, and one that does even at half of it.
MILD, STRONG = 1000.0, 2000.0
#: So heavy that the critic's gradient fits only after 14 halvings of 65536.
PENALTY = 7e2


def test_a_skip_belongs_to_the_optimizer_that_overflowed_and_so_does_the_schedulers_lag(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"left": nn.Linear(4, 1), "right": nn.Linear(4, 1)})
    rates = {"left": 1e-6, "right": 1e-3}
    updates = []
    for name, rate in rates.items():
        optimizer = torch.optim.SGD(model[name].parameters(), lr=rate)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)

        def loss(m: Any, batch: Any, name: str = name) -> Tensor:
            return distance(m[name](batch[0]), batch[1]) * (batch[2] if name == "left" else 1.0)

        updates.append(Update(name=name, optimizer=optimizer, loss=loss, scheduler=scheduler))
    project = Project(model=model, updates=updates, batches=data([1.0, MILD, 1.0, STRONG, 1.0]))
    counts, left, course = counted(project, tmp_path, Policy(scaler=Scaler(init_scale=4096.0)))

    assert (counts["left"].applied, counts["left"].skipped) == (3, 2)
    assert (counts["right"].applied, counts["right"].skipped) == (5, 0)
    assert [update.scheduler.last_epoch for update in updates] == [3, 5]
    assert course.first_bad() == {"left": 1}
    assert left.run.scale == 1024.0, "one back-off per iteration"
    assert counts["left"].first_applied == 0


def test_a_fused_optimizers_skips_are_seen_and_its_own_step_count_agrees(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    called = []
    optimizer.register_step_post_hook(lambda *_: called.append(1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    update = Update(optimizer=optimizer, loss=lambda m, b: distance(m(b[0]), b[1]) * b[2], scheduler=scheduler)
    project = Project(model=model, updates=[update], batches=data([1.0, MILD, 1.0, STRONG, 1.0]))
    counts, left, course = counted(project, tmp_path, Policy(scaler=Scaler(init_scale=4096.0)))

    assert (counts["main"].applied, counts["main"].skipped, counts["main"].changed) == (3, 2, 3)
    assert int(optimizer.state[model.weight]["step"]) == 3
    assert len(called) == 3, "the kernel was never entered for a skip"
    assert scheduler.last_epoch == 3
    scale = course.scale_course()
    assert scale is not None
    assert (scale.initial, scale.final, scale.lowest) == (4096.0, 1024.0, 1024.0)
    assert left.records[-1].scale_after == 1024.0


def test_a_critic_that_overflows_alone_is_counted_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = {"maker": nn.Linear(2, 4), "critic": nn.Linear(4, 1)}
    soft = nn.functional.softplus

    def made(m: Any, batch: Any) -> Tensor:
        with torch.no_grad():
            w, c = m["critic"].weight.clone(), m["critic"].bias.clone()
        return soft(-(m["maker"](batch[0]).float() @ w.t() + c)).mean()

    def judged(m: Any, batch: Any) -> Tensor:
        with torch.no_grad():
            fake = m["maker"](batch[0])
        real_score, fake_score = m["critic"](batch[1]).float(), m["critic"](fake).float()
        return (soft(-real_score) + soft(fake_score)).mean() + PENALTY * (real_score**2).sum()

    updates = [
        Update(name="maker", optimizer=torch.optim.SGD(model["maker"].parameters(), lr=1e-3), loss=made),
        Update(name="critic", optimizer=torch.optim.SGD(model["critic"].parameters(), lr=1e-6), loss=judged),
    ]
    generator = torch.Generator().manual_seed(1)
    pairs = [(torch.randn(8, 2, generator=generator), torch.randn(8, 4, generator=generator)) for _ in range(4)]
    counts, left, course = counted(Project(model=model, updates=updates, batches=pairs * 4), tmp_path, Policy())

    assert (counts["maker"].applied, counts["maker"].skipped) == (16, 0)
    assert (counts["critic"].applied, counts["critic"].skipped) == plain_counts() == (2, 14)
    assert course.first_bad() == {"critic": 0}
    assert left.run.scale == 4.0


def plain_counts() -> tuple[int, int]:
    """The same game in a plain loop: applied and skipped updates of the critic, told by its weights."""
    torch.manual_seed(0)
    maker, critic = nn.Linear(2, 4), nn.Linear(4, 1)
    generator = torch.Generator().manual_seed(1)
    pairs = [(torch.randn(8, 2, generator=generator), torch.randn(8, 4, generator=generator)) for _ in range(4)]
    optimizers = [torch.optim.SGD(maker.parameters(), lr=1e-3), torch.optim.SGD(critic.parameters(), lr=1e-6)]
    scaler, soft, applied = torch.amp.GradScaler("cpu"), nn.functional.softplus, 0
    for noise, real in pairs * 4:
        optimizers[0].zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            w, c = critic.weight.detach().clone(), critic.bias.detach().clone()
            loss = soft(-(maker(noise).float() @ w.t() + c)).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizers[0])
        optimizers[1].zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            with torch.no_grad():
                fake = maker(noise)
            score, fake_score = critic(real).float(), critic(fake).float()
            loss = (soft(-score) + soft(fake_score)).mean() + PENALTY * (score**2).sum()
        scaler.scale(loss).backward()
        before = critic.weight.detach().clone()
        scaler.step(optimizers[1])
        applied += not torch.equal(before, critic.weight)
        scaler.update()
    return applied, 16 - applied


def test_one_bad_micro_batch_costs_its_whole_window(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    weights = [1.0] * 20
    weights[9] = MILD  # the second of the third window
    update = Update(
        optimizer=torch.optim.SGD(model.parameters(), lr=1e-5),
        loss=lambda m, b: distance(m(b[0]), b[1]) * b[2],
        accumulate=4,
    )
    project = Project(model=model, updates=[update], batches=data([w * 4 for w in weights]))
    counts, left, course = counted(project, tmp_path, Policy(scaler=Scaler(init_scale=4096.0)))
    assert (counts["main"].iterations, counts["main"].applied, counts["main"].skipped) == (5, 4, 1)
    assert course.first_bad() == {"main": 2}
    assert left.run.scale == 2048.0


def test_an_update_of_every_second_iteration_is_counted_where_it_takes_part(tmp_path: Path) -> None:
    model = nn.ModuleDict({"often": nn.Linear(4, 1), "seldom": nn.Linear(4, 1)})
    updates = [
        Update(
            name=name,
            every=every,
            optimizer=torch.optim.SGD(model[name].parameters(), lr=1e-3),
            loss=lambda m, b, name=name: distance(m[name](b[0]), b[1]),
        )
        for name, every in (("often", 1), ("seldom", 2))
    ]
    project = Project(model=model, updates=updates, batches=data([1.0] * 5))
    counts, _, _ = counted(project, tmp_path, Policy(dtype="bfloat16"))
    assert (counts["often"].iterations, counts["seldom"].iterations) == (5, 3)


def test_updates_with_zero_gradients_are_applied_and_change_nothing(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    update = Update(
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=lambda m, b: distance(m(b[0]), b[1]) * b[2]
    )
    project = Project(model=model, updates=[update], batches=data([1.0, 0.0, 1.0]))
    counts, _, course = counted(project, tmp_path, Policy(dtype="bfloat16"))
    assert (counts["main"].applied, counts["main"].changed) == (3, 2)
    assert course.scale_course() is None


def test_the_late_loss_is_the_mean_of_the_last_quarter(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    update = Update(
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        loss=lambda m, b: m(b[0]).float().sum() * 0.0 + b[2],
    )
    project = Project(model=model, updates=[update], batches=data([float(n) for n in range(1, 9)]))
    _, _, course = counted(project, tmp_path, Policy(dtype="bfloat16"))
    assert course.late_loss() == {"main": 7.5}
