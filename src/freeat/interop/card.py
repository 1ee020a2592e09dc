"""The model card: what a stranger must know of a model before using it, as a README with the Hub's front matter."""

from collections.abc import Iterator
from typing import Any

import yaml

from freeat.algorithms.registry import parse_algorithm
from freeat.reports.text import percent
from freeat.units import radius_text

TAGS = ["adversarial-robustness", "adversarial-training", "image-classification", "freeat"]


def model_card(manifest: dict[str, Any]) -> str:
    """The card of an exported model, from its manifest alone."""
    sections = (_summary, _measured, _threat, _use, _training, _limits)
    body = "\n\n".join("\n".join(section(manifest)) for section in sections)
    front = yaml.safe_dump(_front_matter(manifest), sort_keys=False, allow_unicode=True)
    return f"---\n{front}---\n\n{body}\n"


def _front_matter(manifest: dict[str, Any]) -> dict[str, Any]:
    figures, threat, data = manifest["figures"], manifest["threat"], manifest["data"]
    under = f"{figures['attack']}, {figures['norm']} {radius_text(figures['eps'])}"
    metrics = (
        ("accuracy", "clean accuracy", figures["test"]["clean_accuracy"]),
        ("accuracy", f"robust accuracy ({under})", figures["test"]["robust_accuracy"]),
        ("generalization_gap", f"robust generalization gap ({under})", figures["gap"]["value"]),
    )
    result = {
        "task": {"type": "image-classification"},
        "dataset": {"name": data["name"], "type": data["name"], "split": "test"},
        "metrics": [{"type": kind, "name": name, "value": value} for kind, name, value in metrics],
    }
    return {
        "library_name": "freeat",
        "pipeline_tag": "image-classification",
        "tags": [*TAGS, threat["norm"]],
        "model-index": [{"name": manifest["name"], "results": [result]}],
    }


def _summary(manifest: dict[str, Any]) -> Iterator[str]:
    algorithm, threat = manifest["training"]["algorithm"], manifest["threat"]
    c, h, w = manifest["input"]["shape"]
    adversarial = parse_algorithm(algorithm).adversarial
    against = f"against {_ball(threat)} perturbations" if adversarial else "without an adversary"
    yield f"# {_plain(manifest['name'])}"
    yield ""
    yield (
        f"A {_code(manifest['model']['network'])} with {manifest['parameters']:,} parameters that tells "
        f"{len(manifest['classes'])} classes of {_code(manifest['data']['name'])} apart ({c}×{h}×{w} images), trained "
        f"by {_code(algorithm)} {against}."
    )


def _measured(manifest: dict[str, Any]) -> Iterator[str]:
    figures = manifest["figures"]
    yield "## What was measured"
    yield ""
    yield f"Accuracy in %, with 95 % intervals; robust means against {_attack(figures)}."
    yield ""
    yield "| | train | test | gap |"
    yield "|---|---:|---:|---:|"
    for word, gap in (("robust", "gap"), ("clean", "clean_gap")):
        cells = (_with_interval(figures[split], word) for split in ("train", "test"))
        between = figures[gap]
        spread = f"[{percent(between['low'])}, {percent(between['high'])}]"
        yield f"| {word} | {' | '.join(cells)} | {percent(between['value'])} {spread} |"
    yield ""
    yield (
        "Evaluated on {} of {} training and {} of {} test images. The gap's interval is that of the images; the "
        "spread over seeds is not in it."
    ).format(*(figures[split][key] for split in ("train", "test") for key in ("n", "population")))
    if manifest["further"]:
        yield ""
        yield "Further evaluations on test images:"
        yield ""
        yield "| against | images | clean | robust |"
        yield "|---|---:|---:|---:|"
    for row in manifest["further"]:
        robust = _with_interval(row, "robust")
        yield f"| {_attack(row)} | {row['n']} | {percent(row['clean_accuracy'])} | {robust} |"


def _threat(manifest: dict[str, Any]) -> Iterator[str]:
    threat = manifest["threat"]
    yield "## Threat model"
    yield ""
    yield (
        f"An adversary who knows the model and adds to an image any perturbation of {threat['norm']} norm at most "
        f"ε = {radius_text(threat['eps'])}, with pixels in [0, 1] before and after."
    )


def _use(manifest: dict[str, Any]) -> Iterator[str]:
    c, h, w = manifest["input"]["shape"]
    trust = ", trust_code=True" if manifest["model"]["needs_code"] else ""
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
    shown = ", ".join(_plain(name) for name in manifest["classes"][:20])
    rest = len(manifest["classes"]) - 20
    yield f"Classes, in the order of the logits: {shown}{f' and {rest} more, in freeat.json' if rest > 0 else ''}."
    if "onnx" in manifest:
        yield ""
        yield (
            "`model.onnx` takes `images` and returns `logits`, with any batch size; on random images onnxruntime's "
            f"logits differed from the model's by at most {manifest['onnx']['largest_difference']:.1e}."
        )


def _training(manifest: dict[str, Any]) -> Iterator[str]:
    training, weights = manifest["training"], manifest["weights"]
    versions = ", ".join(f"{name} {version}" for name, version in training["versions"].items())
    which = {"model": "the last", "ema": "the averaged", "best": "best on validation"}[weights["which"]]
    yield "## Training"
    yield ""
    yield "```sh"
    yield training["command"].replace("\n", " ")
    yield "```"
    yield ""
    yield f"- weights: {which}, after {weights['update']} of {training['updates']} updates"
    yield f"- data: {manifest['data']['train']} training images, SHA-256 {manifest['data']['digest'][:16]}"
    yield f"- run {training['identity']}, commit {training['commit'] or 'unknown'}, {versions}"
    yield f"- machine: {_plain(training['machine']['processor'])}, {training['chosen']['device']}"


def _limits(manifest: dict[str, Any]) -> Iterator[str]:
    figures, threat, data = manifest["figures"], manifest["threat"], manifest["data"]
    yield "## Limits"
    yield ""
    yield "- Robust accuracy is what one attack left over. A stronger attack can only lower it; it proves nothing."
    yield (
        f"- Nothing is claimed beyond {_ball(threat)} perturbations: other norms, larger radii, rotations, blur and "
        "noise were not part of the training."
    )
    yield "- The figures hold for images like the test images. Other cameras, crops or classes were not measured."
    yield "- They are of one run: another seed gives other figures."
    if manifest["weights"]["which"] == "best":
        yield "- These weights were chosen for their robust accuracy on validation images."
    if figures["test"]["robust_accuracy"] <= 1 / len(manifest["classes"]):
        yield "- The model's robust accuracy is not above chance: its gap says nothing."
    if manifest["training"]["collapsed"]:
        yield "- The training collapsed: the model resists a single step only, not an attack of several."
    if manifest["model"]["needs_code"]:
        yield f"- Loading the model runs code of yours, {_code(manifest['model']['network'])}, which must be installed."
    if data["licence"]:
        yield f"- Terms of the training data: {_plain(data['licence'])}."
    for note in data["notes"]:
        yield f"- {_plain(note)}"


def _ball(threat: dict[str, Any]) -> str:
    return f"{threat['norm']} ε = {radius_text(threat['eps'])}"


def _attack(row: dict[str, Any]) -> str:
    which = "" if row["iterate"] == "worst" else ", last iterate"
    return f"{_code(row['attack'])}, {_ball(row)}{which}"


def _with_interval(split: dict[str, Any], word: str) -> str:
    value = percent(split[f"{word}_accuracy"])
    low, high = split[f"{word}_interval"]
    return f"{value} [{percent(low)}, {percent(high)}]"


def _plain(text: str) -> str:
    """Text of users' own as text: one line, and nothing that Markdown or HTML would read."""
    line = " ".join(str(text).split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#&" else sign for sign in line)


def _code(text: str) -> str:
    """A name of users' own as code."""
    line = " ".join(str(text).split()).replace("`", "'").replace("|", "¦")
    return f"`{line}`"
