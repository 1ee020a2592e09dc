"""The model card: what a stranger must know of a model before using it, as a README with the Hub's front matter."""

from collections.abc import Iterator
from typing import Any

import yaml

from freeat.algorithms.registry import parse_algorithm
from freeat.evaluation.evaluate import Summary
from freeat.evaluation.evaluator import Scores
from freeat.reports.tables import percent, percent_interval
from freeat.runs.open import FurtherEvaluation, Manifest
from freeat.runs.spec import TrainSpec
from freeat.units import radius_text

TAGS = ["adversarial-robustness", "adversarial-training", "image-classification", "freeat"]


def model_card(manifest: Manifest) -> str:
    """The card of an exported model, from its manifest alone."""
    sections = (_summary, _measured, _threat, _use, _training, _limits)
    body = "\n\n".join("\n".join(section(manifest)) for section in sections)
    front = yaml.safe_dump(_front_matter(manifest), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{body}\n"


def _front_matter(manifest: Manifest) -> dict[str, Any]:
    scores, data = manifest.scores, manifest.run.data
    under = f"{scores.attack}, {scores.norm} {radius_text(scores.eps)}"
    metrics = (
        ("accuracy", "clean accuracy", scores.test.clean_accuracy),
        ("accuracy", f"robust accuracy ({under})", scores.test.robust_accuracy),
        ("generalization_gap", f"robust generalization gap ({under})", scores.gap.value),
    )
    result = {
        "task": {"type": "image-classification"},
        "dataset": {"name": data.name, "type": data.name, "split": "test"},
        "metrics": [{"type": kind, "name": name, "value": value} for kind, name, value in metrics],
    }
    return {
        "library_name": "freeat",
        "pipeline_tag": "image-classification",
        "tags": [*TAGS, manifest.run.spec.norm],
        "model-index": [{"name": manifest.name, "results": [result]}],
    }


def _summary(manifest: Manifest) -> Iterator[str]:
    spec, data = manifest.run.spec, manifest.run.data
    algorithm = spec.algorithm
    c, h, w = data.shape
    adversarial = parse_algorithm(algorithm).adversarial
    against = f"against {_ball(spec)} perturbations" if adversarial else "without an adversary"
    yield f"# {_plain(manifest.name)}"
    yield ""
    yield (
        f"A {_code(spec.model)} with {manifest.run.parameters:,} parameters that tells "
        f"{len(data.classes)} classes of {_code(data.name)} apart ({c}×{h}×{w} images), trained "
        f"by {_code(algorithm)} {against}."
    )


def _measured(manifest: Manifest) -> Iterator[str]:
    scores = manifest.scores
    yield "## What was measured"
    yield ""
    yield f"Accuracy in %, with 95 % intervals; robust means against {_attack(scores)}."
    yield ""
    yield "| | train | test | gap |"
    yield "|---|---:|---:|---:|"
    for word, gap in (("robust", scores.gap), ("clean", scores.clean_gap)):
        columns = " | ".join(_with_interval(split, word) for split in (scores.train, scores.test))
        yield f"| {word} | {columns} | {percent(gap.value)} {percent_interval(gap.low, gap.high)} |"
    yield ""
    train, test = scores.train, scores.test
    yield (
        f"Evaluated on {train.n} of {train.population} training and {test.n} of {test.population} test images. The "
        "gap's interval is that of the images; the spread over seeds is not in it."
    )
    if manifest.further:
        yield ""
        yield "Further evaluations on test images:"
        yield ""
        yield "| against | images | clean | robust |"
        yield "|---|---:|---:|---:|"
    for row in manifest.further:
        robust = _with_interval(row, "robust")
        yield f"| {_attack(row)} | {row.n} | {percent(row.clean_accuracy)} | {robust} |"


def _threat(manifest: Manifest) -> Iterator[str]:
    spec = manifest.run.spec
    yield "## Threat model"
    yield ""
    yield (
        f"An adversary who knows the model and adds to an image any perturbation of {spec.norm} norm at most "
        f"ε = {radius_text(spec.eps)}, with pixels in [0, 1] before and after."
    )


def _use(manifest: Manifest) -> Iterator[str]:
    data = manifest.run.data
    c, h, w = data.shape
    trust = ", trust_code=True" if manifest.needs_code else ""
    yield "## Use"
    yield ""
    yield f"Images are float, ({c}, {h}, {w}), with pixels in [0, 1]; any normalization is inside the model."
    yield ""
    yield "```python"
    yield "import freeat"
    yield ""
    yield f'model = freeat.load("path/to/this/folder"{trust})  # torch.nn.Module, in evaluation mode'
    yield "logits = model(images)"
    yield "```"
    yield ""
    shown = ", ".join(_plain(name) for name in data.classes[:20])
    rest = len(data.classes) - 20
    yield f"Classes, in the order of the logits: {shown}{f' and {rest} more, in freeat.json' if rest > 0 else ''}."
    if manifest.onnx is not None:
        yield ""
        yield (
            "`model.onnx` takes `images` and returns `logits`, with any batch size; on random images onnxruntime's "
            f"logits differed from the model's by at most {manifest.onnx.largest_difference:.1e}."
        )


def _training(manifest: Manifest) -> Iterator[str]:
    run, weights, made_by = manifest.run, manifest.weights, manifest.run.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made_by.versions.items())
    which = {"model": "the last", "ema": "the averaged", "best": "best on validation"}[weights.which]
    yield "## Training"
    yield ""
    yield "```sh"
    yield made_by.command.replace("\n", " ")
    yield "```"
    yield ""
    yield f"- weights: {which}, after {weights.update} of {run.updates} updates"
    yield f"- data: {run.data.train} training images, SHA-256 {run.data.digest[:16]}"
    yield f"- run {run.identity}, commit {made_by.commit or 'unknown'}, {versions}"
    yield f"- machine: {_plain(made_by.machine.processor)}, {run.chosen.device}"


def _limits(manifest: Manifest) -> Iterator[str]:
    scores, spec, data = manifest.scores, manifest.run.spec, manifest.run.data
    yield "## Limits"
    yield ""
    yield "- Robust accuracy is what one attack left over. A stronger attack can only lower it; it proves nothing."
    yield (
        f"- Nothing is claimed beyond {_ball(spec)} perturbations: other norms, larger radii, rotations, blur and "
        "noise were not part of the training."
    )
    yield "- The figures hold for images like the test images. Other cameras, crops or classes were not measured."
    yield "- They are of one run: another seed gives other figures."
    if manifest.weights.which == "best":
        yield "- These weights were chosen for their robust accuracy on validation images."
    if scores.test.robust_accuracy <= 1 / len(data.classes):
        yield "- The model's robust accuracy is not above chance: its gap says nothing."
    if manifest.collapsed:
        yield "- The training collapsed: the model resists a single step only, not an attack of several."
    if manifest.needs_code:
        yield f"- Loading the model runs code of yours, {_code(spec.model)}, which must be installed."
    if manifest.licence:
        yield f"- Terms of the training data: {_plain(manifest.licence)}."
    for note in data.notes:
        yield f"- {_plain(note)}"


def _ball(at: TrainSpec | Scores | FurtherEvaluation) -> str:
    return f"{at.norm} ε = {radius_text(at.eps)}"


def _attack(row: Scores | FurtherEvaluation) -> str:
    which = "" if row.iterate == "worst" else ", last iterate"
    return f"{_code(row.attack)}, {_ball(row)}{which}"


def _with_interval(split: Summary | FurtherEvaluation, word: str) -> str:
    interval = percent_interval(*getattr(split, f"{word}_interval"))
    return f"{percent(getattr(split, f'{word}_accuracy'))} {interval}"


def _plain(text: str) -> str:
    """Text of users' own as text: one line, and nothing that Markdown or HTML would read."""
    line = " ".join(str(text).split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#&" else sign for sign in line)


def _code(text: str) -> str:
    """A name of users' own as code."""
    line = " ".join(str(text).split()).replace("`", "'").replace("|", "¦")
    return f"`{line}`"
