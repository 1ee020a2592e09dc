"""The model card of an exported model: a README with the front matter of the 🤗 Hub."""

from typing import Any

import yaml

from freeat.algorithms.registry import parse_algorithm
from freeat.errors import printable
from freeat.evaluation.evaluate import Summary
from freeat.evaluation.evaluator import Scores
from freeat.evaluation.statistics import chance_remark
from freeat.reports.tables import markdown_text, percent, percent_interval
from freeat.runs.open import FurtherEvaluation, Manifest
from freeat.runs.spec import TrainSpec
from freeat.units import radius_text

NEWLINE = "\n"  # Python 3.11 has no backslash inside the braces of an f-string

TAGS = ["adversarial-robustness", "adversarial-training", "image-classification", "freeat"]


def model_card(manifest: Manifest) -> str:
    """The card of an exported model, from its manifest."""
    sections = (_summary, _evaluation, _threat, _use, _training, _limits)
    front = yaml.safe_dump(_front_matter(manifest), sort_keys=False, allow_unicode=True)
    body = "\n\n".join(section(manifest) for section in sections)
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


def _summary(manifest: Manifest) -> str:
    spec, data = manifest.run.spec, manifest.run.data
    c, h, w = data.shape
    adversarial = parse_algorithm(spec.algorithm).adversarial
    against = f"against {_ball(spec)} perturbations" if adversarial else "without an adversary"
    model, parameters = manifest.run.resolved.model, manifest.run.parameters
    return f"""\
# {markdown_text(manifest.name)}

A {_code(model)} with {parameters:,} parameters for the {len(data.classes)} classes of \
{_code(data.name)} ({c}×{h}×{w} images), trained by {_code(spec.label_of(manifest.weights.which))} {against}."""


def _evaluation(manifest: Manifest) -> str:
    scores = manifest.scores
    train, test = scores.train, scores.test
    rows = [
        f"| {kind} | {_with_interval(train, kind)} | {_with_interval(test, kind)} | "
        f"{percent(gap.value)} {percent_interval(gap.low, gap.high)} |"
        for kind, gap in (("robust", scores.gap), ("clean", scores.clean_gap))
    ]
    text = f"""\
## Evaluation

Accuracy in %, with 95 % intervals; robust means against {_attack(scores)}.

| | train | test | gap |
|---|---:|---:|---:|
{NEWLINE.join(rows)}

Evaluated on {train.n} of {train.population} training and {test.n} of {test.population} test images. The interval of \
the gap is over images; the variation over seeds is not in it."""
    if not manifest.further:
        return text
    further = [
        f"| {_attack(one)} | {one.n} | {percent(one.clean_accuracy)} | {_with_interval(one, 'robust')} |"
        for one in manifest.further
    ]
    return f"""{text}

Further evaluations on test images:

| against | images | clean | robust |
|---|---:|---:|---:|
{NEWLINE.join(further)}"""


def _threat(manifest: Manifest) -> str:
    spec = manifest.run.spec
    return f"""\
## Threat model

A white-box adversary who adds to an image any perturbation of {spec.norm} norm at most ε = {radius_text(spec.eps)}, \
with pixels in [0, 1] before and after."""


def _use(manifest: Manifest) -> str:
    data = manifest.run.data
    c, h, w = data.shape
    trust, how = ", trust_code=True" if manifest.needs_code else "", manifest.preprocessing
    shown = ", ".join(markdown_text(name) for name in data.classes[:20])
    rest = len(data.classes) - 20
    text = f"""\
## Use

Images are {"RGB" if c == 3 else f"of {c} channel{'s' * (c > 1)}"}, float, ({c}, {h}, {w}), with pixels in \
[{how.low:g}, {how.high:g}]; any normalization is inside the model. An image is turned upright by its EXIF tag; one of \
another size is scaled ({how.resize}), then cropped at its {how.crop}.

```python
import freeat

model = freeat.load("path/to/this/folder"{trust})  # torch.nn.Module, in evaluation mode
logits = model(model.preprocess(["photo.jpg"]))
print(model.classes[int(logits.argmax())])
```

Or on the command line: `freeat predict path/to/this/folder photo.jpg`. From the Hub, write `hf://OWNER/NAME@COMMIT` \
for the folder.

Classes, in the order of the logits: {shown}{f" and {rest} more, in freeat.json" if rest > 0 else ""}."""
    if manifest.onnx is None:
        return text
    if c in (1, 3):
        text += _onnx_script(c, h, w)
    return f"""{text}

`model.onnx` takes `images` and returns `logits`, with any batch size, and holds classes and preprocessing in \
its metadata (`freeat predict path/to/this/folder/model.onnx photo.jpg`); on random images onnxruntime's logits \
differed from the model's by at most {manifest.onnx.largest_difference:.1e}."""


def _onnx_script(c: int, h: int, w: int) -> str:
    """Prediction without freeat, with the pixels that ``Preprocessing`` gives to 8-bit images."""
    return f"""

Without freeat, from `model.onnx` by onnxruntime and Pillow (a 16-bit image must be brought to 8 bits first):

```python
import json

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

session = onnxruntime.InferenceSession("path/to/this/folder/model.onnx")
classes = json.loads(session.get_modelmeta().custom_metadata_map["freeat.classes"])
image = ImageOps.exif_transpose(Image.open("photo.jpg")).convert("{"RGB" if c == 3 else "L"}")
image = ImageOps.fit(image, ({w}, {h}), Image.Resampling.BILINEAR)  # width, height
x = np.asarray(image, np.float32).reshape(1, {h}, {w}, {c}).transpose(0, 3, 1, 2) / 255
(logits,) = session.run(["logits"], {{"images": x}})
print(classes[int(logits.argmax())])
```"""


def _training(manifest: Manifest) -> str:
    run, weights, made_by = manifest.run, manifest.weights, manifest.run.provenance
    versions = ", ".join(f"{name} {version}" for name, version in made_by.versions.items())
    named = {"model": "the last", "ema": "the averaged", "slow": "the slow", "best": "best on validation"}
    which = named.get(weights.which, markdown_text(weights.which))
    return f"""\
## Training

```sh
{_code(made_by.command)[1:-1]}
```

- weights: {which}, after {weights.update} of {run.updates} updates
- data: {run.data.train} training images, SHA-256 {run.data.digest[:16]}
- run {markdown_text(run.identity)}, commit {markdown_text(made_by.commit or "unknown")}, {markdown_text(versions)}
- machine: {markdown_text(made_by.machine.processor)}, {markdown_text(run.chosen.device)}"""


def _limits(manifest: Manifest) -> str:
    scores, spec, data = manifest.scores, manifest.run.spec, manifest.run.data
    limits = [
        "Robust accuracy is an upper bound from one attack. A stronger attack can only lower it.",
        f"Nothing is claimed beyond {_ball(spec)} perturbations: other norms, larger radii, rotations, blur and noise "
        "were not part of the training.",
        "The numbers hold for images like the test images. Other cameras, crops or classes were not evaluated.",
        "They are of one run: another seed gives other numbers.",
    ]
    if manifest.weights.which == "best":
        limits.append("These weights were chosen for their robust accuracy on validation images.")
    if scores.constant_answer is not None:
        limits.append(chance_remark("The model", constant_answers=1))
    elif not scores.test.above_chance():
        limits.append("The model's robust test accuracy is not above chance: its gap is meaningless.")
    if manifest.collapsed:
        limits.append(
            "The training collapsed (catastrophic overfitting): the model resists a single step only, not an attack of "
            "several."
        )
    if manifest.needs_code:
        limits.append(
            f"Loading the model runs your code {_code(manifest.run.resolved.model)}, which must be installed."
        )
    if manifest.run.chosen.package:
        limits.append(
            f"Loading the model needs {_code(manifest.run.chosen.package)}, or a version that computes the same logits."
        )
    if manifest.licence:
        limits.append(f"Terms of the training data: {markdown_text(manifest.licence)}.")
    limits += [markdown_text(note) for note in (*manifest.notes, *data.notes)]
    return "\n".join(["## Limitations", "", *(f"- {limit}" for limit in limits)])


def _ball(at: TrainSpec | Scores | FurtherEvaluation) -> str:
    return f"{at.norm} ε = {radius_text(at.eps)}"


def _attack(row: Scores | FurtherEvaluation) -> str:
    which = "" if row.iterate == "worst" else ", last iterate"
    return f"{_code(row.attack)}, {_ball(row)}{which}"


def _with_interval(split: Summary | FurtherEvaluation, kind: str) -> str:
    interval = percent_interval(*getattr(split, f"{kind}_interval"))
    return f"{percent(getattr(split, f'{kind}_accuracy'))} {interval}"


def _code(text: str) -> str:
    """A user's name as code."""
    line = " ".join(printable(str(text)).split()).replace("`", "'").replace("|", "¦")
    return f"`{line}`"
