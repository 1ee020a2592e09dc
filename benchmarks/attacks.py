"""PGD-10, Square and AutoAttack, images per second and accuracy, beside foolbox, ART and pyautoattack.

Every library is called as its documentation shows, on the same images, in evaluation mode, with the same number
of threads. Rounds are interleaved, so that a busy machine slows all alike, and the fastest of each is kept. How many
queries Square needs is random, and a short search is no fast one: each of its rounds has a seed of its own, the images
per second are of all rounds together, and the speed of queries is separate: scores per second, every image that the
model was shown counted once.

    python benchmarks/attacks.py --robust RUN --threads 2

``--robust`` is a run folder or any reference that ``freeat evaluate`` takes; the ResNet-18 is the one that
pyautoattack ships (it is not robust: in mode ``worst`` its active set vanishes, which is no speed; compare mode
``last``). AutoAttack takes minutes for tens of images, and is run where it is asked for:

    python benchmarks/attacks.py --robust RUN --race AutoAttack --images 32 --rounds 1 --threads 2
"""

import copy
import importlib.resources
import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click
import numpy as np
import torch
from torch import Tensor, nn

from freeat.attacks.autoattack import AutoAttack
from freeat.attacks.pgd import Pgd
from freeat.attacks.result import Attack
from freeat.attacks.square import Square
from freeat.compute.frozen import frozen_eval
from freeat.compute.machine import arithmetic, provenance
from freeat.data import DataSet, load_data
from freeat.rng import ImageRng
from freeat.runs.open import Opened, open_model
from freeat.threat import L2, Ball, make_ball
from freeat.units import parse_radius

Run = Callable[[nn.Module, Tensor, Tensor, Ball, int], Tensor]  # to perturbed images, by a seed
Clock = Callable[[], float]
ON_REQUEST = "AutoAttack"


@dataclass
class Contender:
    """One library's way to run an attack; ``ours`` are compared with the best of the others."""

    name: str
    run: Run
    ours: bool = False
    times: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)  # images that the model was shown, round by round

    def images_per_second(self, n: int, *, random_cost: bool) -> float:
        return n * len(self.times) / sum(self.times) if random_cost else n / min(self.times)

    @property
    def scores_per_second(self) -> float:
        return max(shown / seconds for shown, seconds in zip(self.shown, self.times, strict=True))


def ours(attack: Attack) -> Run:
    """A built-in attack, with the model in frozen eval mode."""

    def run(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, seed: int) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        with frozen_eval(model):
            return ball.apply(x, attack(model, x, y, ball, ImageRng(seed, range(len(x)))).delta)

    return run


def foolbox_pgd(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, seed: int) -> Tensor:
    import foolbox

    kind = foolbox.attacks.L2PGD if isinstance(ball, L2) else foolbox.attacks.LinfPGD
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device)
    _, adversarial, _ = kind(steps=10, rel_stepsize=0.25)(wrapped, x, y, epsilons=ball.eps)
    return adversarial


def _art(model: nn.Module, x: Tensor) -> object:
    from art.estimators.classification import PyTorchClassifier

    with torch.no_grad():
        classes = model(x[:1]).shape[-1]
    return PyTorchClassifier(
        model,
        nn.CrossEntropyLoss(),
        tuple(x.shape[1:]),
        classes,
        clip_values=(0, 1),
        device_type=x.device.type,
    )


def _art_norm(ball: Ball) -> float:
    return 2 if isinstance(ball, L2) else np.inf


def art_pgd(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, seed: int) -> Tensor:
    from art.attacks.evasion import ProjectedGradientDescent

    attack = ProjectedGradientDescent(
        _art(model, x),
        norm=_art_norm(ball),
        eps=ball.eps,
        eps_step=ball.eps / 4,
        max_iter=10,
        num_random_init=1,
        batch_size=len(x),
        verbose=False,
    )
    return torch.from_numpy(attack.generate(x=x.numpy(), y=y.numpy()))


def art_square(queries: int) -> Run:
    def run(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, seed: int) -> Tensor:
        from art.attacks.evasion import SquareAttack

        attack = SquareAttack(
            _art(model, x),
            norm=_art_norm(ball),
            eps=ball.eps,
            max_iter=queries,
            p_init=0.8,
            nb_restarts=1,
            batch_size=len(x),
            verbose=False,
        )
        return torch.from_numpy(attack.generate(x=x.numpy(), y=y.numpy()))

    return run


def autoattack_apgd(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, seed: int) -> Tensor:
    """It has no PGD; its APGD with 10 steps does the same number of passes."""
    from pyautoattack.autopgd_base import APGDAttack

    norm = "L2" if isinstance(ball, L2) else "Linf"
    attack = APGDAttack(model, n_iter=10, norm=norm, n_restarts=1, eps=ball.eps, seed=seed, device=x.device)
    return attack.perturb(x, y)


def autoattack_square(queries: int) -> Run:
    def run(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, seed: int) -> Tensor:
        from pyautoattack.square import SquareAttack

        attack = SquareAttack(
            model,
            norm="L2" if isinstance(ball, L2) else "Linf",
            n_queries=queries,
            eps=ball.eps,
            p_init=0.8,
            seed=seed,
            resc_schedule=False,
            device=x.device,
        )
        with torch.no_grad():
            return attack.perturb(x, y)

    return run


def autoattack(version: str = "standard") -> Run:
    """pyautoattack's own evaluation, called as its documentation shows, with a seed: ``standard`` or one part."""

    def run(model: nn.Module, x: Tensor, y: Tensor, ball: Ball, seed: int) -> Tensor:
        from pyautoattack import AutoAttack as Theirs

        norm = "L2" if isinstance(ball, L2) else "Linf"
        parts = {"version": "custom", "attacks": [version]} if version != "standard" else {}
        adversary = Theirs(model, norm=norm, eps=ball.eps, seed=seed, device=x.device, **parts)
        adversary.apgd.n_restarts = 1  # as in version "standard"
        perturbed: Tensor = adversary.run_standard_evaluation(x, y, batch_size=len(x))[0]
        return perturbed

    return run


def contenders(queries: int) -> dict[str, list[Contender]]:
    """Who takes part in which race."""
    return {
        "PGD-10": [
            Contender("freeat, last, fp32", ours(Pgd(iterate="last")), ours=True),
            Contender("freeat, last, bf16", ours(Pgd(iterate="last", precision="bf16")), ours=True),
            Contender("freeat, worst, fp32", ours(Pgd()), ours=True),
            Contender("freeat, worst, bf16", ours(Pgd(precision="bf16")), ours=True),
            Contender("foolbox", foolbox_pgd),
            Contender("ART", art_pgd),
            Contender("pyautoattack (APGD)", autoattack_apgd),
        ],
        f"Square-{queries}": [
            Contender("freeat, fp32", ours(Square(queries=queries)), ours=True),
            Contender("freeat, bf16", ours(Square(queries=queries, precision="bf16")), ours=True),
            Contender("ART", art_square(queries)),
            Contender("pyautoattack", autoattack_square(queries)),
        ],
        ON_REQUEST: [
            Contender("freeat, fp32", ours(AutoAttack()), ours=True),
            Contender("freeat, bf16", ours(AutoAttack(precision="bf16")), ours=True),
            Contender("pyautoattack", autoattack()),
        ],
    }


def race(
    entered: list[Contender], model: nn.Module, x: Tensor, y: Tensor, ball: Ball, rounds: int, clock: Clock
) -> None:
    """Let all run in turn, ``rounds`` times; the others get the model in torch's usual layout, as their users do."""
    plain = copy.deepcopy(model).to(memory_format=torch.contiguous_format)

    def run(contender: Contender, seed: int) -> None:
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002  (the generator that ART draws from)
        asked = model if contender.ours else plain
        with shown_to(asked) as shown:
            began = clock()
            adversarial = contender.run(asked, x, y, ball, seed)
            contender.times.append(clock() - began)
        contender.shown.append(sum(shown))
        with torch.no_grad():
            contender.accuracies.append(float((model(adversarial).argmax(-1) == y).double().mean()))

    for seed in range(rounds):
        with arithmetic(
            threads=torch.get_num_threads(), deterministic=True
        ):  # as ``freeat evaluate`` sets it
            for contender in entered:
                if contender.ours:
                    run(contender, seed)
        for contender in entered:
            if not contender.ours:
                run(contender, seed)


@contextmanager
def shown_to(model: nn.Module) -> Iterator[list[int]]:
    """The images of each call of the model, counted at its last layer, for ART calls a network's layers itself."""
    shown: list[int] = []
    last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    hook = last.register_forward_pre_hook(lambda _, inputs: shown.append(len(inputs[0])))
    try:
        yield shown
    finally:
        hook.remove()


def table(name: str, model: str, entered: list[Contender], n: int) -> list[dict[str, object]]:
    """Images and scores per second, and how many times the best peer's."""
    random_cost = not name.startswith("PGD")
    speeds = {c.name: c.images_per_second(n, random_cost=random_cost) for c in entered}
    best = max(speeds[c.name] for c in entered if not c.ours)
    best_scores = max(c.scores_per_second for c in entered if not c.ours)
    rows = []
    print(
        f"\n{name} on {model}\n\n| library | images/s | × best peer | scores/s | × best peer | accuracy |\n"
        "|---|---:|---:|---:|---:|---|"
    )
    for contender in entered:
        speed, scores = speeds[contender.name], contender.scores_per_second
        ratios = (f"{speed / best:.2f}", f"{scores / best_scores:.2f}") if contender.ours else ("", "")
        accuracies = ", ".join(f"{accuracy:.1%}" for accuracy in dict.fromkeys(contender.accuracies))
        print(
            f"| {contender.name} | {speed:.1f} | {ratios[0]} | {scores:.0f} | {ratios[1]} | {accuracies} |",
            flush=True,
        )
        rows.append(
            {
                "attack": name,
                "model": model,
                "library": contender.name,
                "images_per_second": speed,
                "scores_per_second": scores,
                "times_best_peer": speed / best if contender.ours else None,
                "scores_times_best_peer": scores / best_scores if contender.ours else None,
                "seconds": contender.times,
                "shown": contender.shown,
                "accuracies": contender.accuracies,
            }
        )
    return rows


def models(robust: str | None, data: DataSet) -> list[tuple[Opened, Ball]]:
    """The robust model in the ball it was trained for, and pyautoattack's ResNet-18 in Linf 8/255."""
    found: list[tuple[Opened, Ball]] = []
    if robust is not None:
        opened = open_model(robust, data, name="robust model")
        spec = opened.spec
        found.append((opened, make_ball(spec.norm, spec.eps) if spec else make_ball("l2", 128 / 255)))
    weights = importlib.resources.files("pyautoattack") / "examples" / "model_test.pt"
    reference = f"pyautoattack.examples.resnet:ResNet18@{weights}"
    opened = open_model(reference, data, name="ResNet-18", trust_code=True)
    found.append((opened, make_ball("linf", parse_radius("8/255"))))
    return found


@click.command()
@click.option("--robust", default=None, help="a robust CIFAR-10 model: run folder or NETWORK@FILE")
@click.option("--only", type=click.Choice(["robust model", "ResNet-18"]), help="one of the two models")
@click.option("--race", "attack", type=click.Choice(["PGD", "Square", ON_REQUEST]), help="one of the attacks")
@click.option(
    "--without", multiple=True, help="leave out a library, e.g. ART, which takes long at 5000 queries"
)
@click.option("--images", "n", default=256, show_default=True, help="images, all in one batch")
@click.option("--queries", default=100, show_default=True, help="queries of Square")
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option(
    "--cpu-time",
    is_flag=True,
    help="count processor time instead of seconds: for a machine that others use too",
)
@click.option("--data-dir", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="write the figures as JSON")
def main(
    robust: str | None,
    only: str | None,
    attack: str | None,
    without: tuple[str, ...],
    n: int,
    queries: int,
    threads: int,
    rounds: int,
    cpu_time: bool,
    data_dir: Path | None,
    out: Path | None,
) -> None:
    """Race freeat's attacks against foolbox, ART and pyautoattack."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    clock = time.process_time if cpu_time else time.perf_counter
    data = load_data("cifar10", data_dir=data_dir)
    x, y = data.test.sample(n).batch(torch.arange(n))
    x = x.contiguous(memory_format=torch.contiguous_format)
    rows = []
    for opened, ball in models(robust, data):
        if only not in (None, opened.name):
            continue
        model = opened.model.eval()
        with torch.no_grad():
            clean = float((model(x).argmax(-1) == y).double().mean())
        print(
            f"\n{opened.name}: {ball.norm} ε = {ball.eps:.4g}, {n} images, {threads} threads, clean {clean:.1%}"
        )
        for name, invited in contenders(queries).items():
            if not name.startswith(attack or "") or (name == ON_REQUEST and attack is None):
                continue
            entered = [contender for contender in invited if contender.name not in without]
            race(entered, model, x, y, ball, rounds, clock)
            rows += table(name, opened.name, entered, n)
    if out is not None:
        facts = asdict(provenance(torch.device("cpu"))) | {
            "images": n,
            "threads": threads,
            "rounds": rounds,
            "cpu_time": cpu_time,
            "command": shlex.join(["python", "benchmarks/attacks.py", *sys.argv[1:]]),
        }
        out.write_text(json.dumps({"format": 2, "rows": rows, **facts}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
