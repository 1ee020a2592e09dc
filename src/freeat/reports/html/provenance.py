"""Where every number comes from: spec, seed, versions, commit, machine and command."""

import json
from collections.abc import Mapping

from freeat.files.documents import plain
from freeat.reports.html.blocks import Block, FactList, Section
from freeat.reports.html.gather import Findings, FoundRun
from freeat.reports.tables import NO_VALUE, ReportTable, count_text
from freeat.runs.results import StoredEvaluation
from freeat.units import radius_text


def provenance_section(found: Findings) -> Section:
    """One row per run, with its full provenance folded below."""
    blocks: list[Block] = []
    if found.runs:
        columns = ("run", "algorithm", "commit", "identity", "seed", "parameters", "updates")
        rows = [_row(run) for run in found.runs]
        blocks.append(ReportTable(caption="Runs", columns=columns, rows=rows, text_columns=4))
        blocks += [FactList(title=run.name, facts=_of_run(run)) for run in found.runs]
    for name, comparison in found.comparisons:
        made_by = plain(comparison.provenance) if comparison.provenance else {}
        settings = {"settings": plain(comparison.settings)} if comparison.settings else {}
        if stated := _facts({**settings, **_origin(made_by)}):
            blocks.append(FactList(title=name, facts=stated))
    for study in found.studies:
        settings = {"settings": plain(study.settings)} if study.settings else {}
        origin = _origin(plain(study.summary)) if study.summary else {}
        blocks.append(FactList(title=study.name, facts=_facts({**settings, **origin})))
    for name, reproduction in found.reproductions:
        made_by = plain(reproduction.provenance) | _origin(plain(reproduction))
        blocks.append(FactList(title=name, facts=_facts({"scale": reproduction.scale, **made_by})))
        if runs := reproduction.runs.values():
            specs = {run.name: json.dumps(run.spec, ensure_ascii=False) for run in runs}
            blocks.append(FactList(title=f"{name}: its {len(specs)} runs", facts=_facts(specs)))
    if found.evaluations:
        facts = {_evaluated(one): one.identity for one in found.evaluations}
        blocks.append(FactList(title="Attacks: what each evaluation depends on", facts=_facts(facts)))
    return Section(
        key="provenance",
        title="Provenance",
        lead="Every random draw is a function of the seed: the same spec on the same machine gives the same "
        "bits. What each number was made from:",
        blocks=blocks,
    )


def _evaluated(one: StoredEvaluation) -> str:
    condition = f"{one.norm} ε = {radius_text(one.eps)}, {one.n} {one.split} images, seed {one.seed}"
    return f"{one.model}: {one.attack}, {condition}"


def _row(run: FoundRun) -> list[str]:
    about = run.description
    updates = run.last.update if run.last else 0
    return [
        run.name,
        run.spec.label_of(run.weights),
        about.provenance.commit or NO_VALUE,
        about.identity,
        str(run.spec.seed),
        count_text(about.parameters),
        count_text(updates),
    ]


def _of_run(run: FoundRun) -> list[tuple[str, str]]:
    about = plain(run.description)
    keys = ("identity", "spec", "evaluation", "chosen", "data", "initial_weights")
    facts = {key: about[key] for key in keys}
    return _facts({"seed": run.spec.seed, **facts, **_origin(about["provenance"])})


def _origin(document: Mapping[str, object]) -> dict[str, object]:
    """Provenance of a document, and of the results that it summarizes if that differs."""
    keys = ("command", "versions", "commit", "machine", "commits", "machines")
    return {key: document[key] for key in keys if key in document}


def _facts(values: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), _text(value)) for name, value in values.items() if value is not None]


def _text(value: object) -> str:
    if isinstance(value, dict):
        pairs = ((k, v) for k, v in value.items() if v is not None)
        return "\n".join(f"{key}: {_text(v)}" for key, v in pairs)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
