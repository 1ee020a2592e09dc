"""Names in files are not trusted: no control characters on a terminal, no Markdown and HTML in what is written."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from freeat.cli import progress
from freeat.cli.main import run as freeat
from freeat.cli.progress import SweepProgress
from freeat.errors import InputError, printable
from freeat.reports.tables import ReportTable, listed, markdown_text, print_table
from freeat.runs.build import build_network
from freeat.runs.folder import RunFolder
from freeat.runs.inventory import runs_in
from freeat.runs.spec import TrainSpec
from small_runs import arguments, carry_out

HOSTILE = "a\x1b[2J\x07\u202e|<img src=x>[x](javascript:1)"


def changed(folder: Path, **fields: object) -> None:
    document = json.loads((folder / "run.json").read_text())
    for name, value in fields.items():
        holder = document
        *path, last = name.split("__")
        for key in path:
            holder = holder[key]
        holder[last] = value
    (folder / "run.json").write_text(json.dumps(document))


def test_control_characters_of_names_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(tmp_path / "run")
    changed(tmp_path / "run", spec__data=HOSTILE, data__name=HOSTILE, data__notes=[HOSTILE], notes=[HOSTILE])
    for command in (["runs"], ["runs", "show", "run"], ["train", HOSTILE], ["evaluate", HOSTILE]):
        freeat([*command, *(["--store", str(tmp_path)] if command[0] == "runs" else [])])
    output = capsys.readouterr()
    for text in (output.out, output.err):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "[2J" in output.out + output.err


@pytest.mark.parametrize(
    "title", [HOSTILE, "closed [/bold]", "open [bold]", "[link=file:///etc/passwd]x[/link]"]
)
def test_a_name_in_the_bar_is_neither_obeyed_nor_read_as_markup(
    title: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(stderr=stderr, force_terminal=True, width=200)
    )
    with SweepProgress() as reported:
        reported.watch(title, 10)(5)
        reported.show(title, 6, 10, "images", latest=title)
    output = capsys.readouterr().err
    assert output.count(printable(title)) >= 2
    assert not {"\x07", "\u202e"} & set(output)
    assert "\x1b[2J" not in output


def test_markdown_has_no_effect_in_names() -> None:
    assert markdown_text(HOSTILE) == r"a\[2J\|\<img src=x\>\[x\](javascript:1)"
    table = ReportTable(
        caption="", columns=("algorithm", "gap"), rows=[(HOSTILE, "0.1 [0.0, 0.2]")], notes=[HOSTILE]
    )
    text = f"{table.markdown()}\n\n{listed(table.notes)}\n"
    assert "<img" not in text.replace("\\<", "")
    assert text.splitlines()[2].replace("\\|", "").count("|") == 3
    assert "0.1 [0.0, 0.2]" in text


def test_one_broken_run_is_named_and_stops_no_list_and_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    carry_out(tmp_path / "good")
    for k, change in enumerate(({"updates": []}, {"identity": 3.7}, {"spec": 3}, {"data": None})):
        carry_out(tmp_path / f"bad-{k}", seed=k) if k == 0 else _copy(
            tmp_path / "bad-0", tmp_path / f"bad-{k}"
        )
        changed(tmp_path / f"bad-{k}", **change)
    (tmp_path / "good" / "result.json.fifo").touch()
    found = {one.key: one.status for one in runs_in(tmp_path)}
    assert found == {"good": "finished", **{f"bad-{k}": "damaged" for k in range(4)}}
    assert freeat(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    left_out = capsys.readouterr().err
    assert all(f"bad-{k}" in left_out for k in range(4))


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for file in source.glob("*.*"):
        if file.is_file():
            (target / file.name).write_bytes(file.read_bytes())


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": "1e308"},
        {"weight_decay": "1e300"},
        {"alpha": "1e308"},
        {"eps": "1e308"},
        {"epochs": "1e308"},
        {"updates": "9" * 27},
        {"batch_size": "9" * 27},
        {"train_size": "9" * 27},
        {"threads": "9" * 27},
        {"threads": "5000"},
        {"updates": "9" * 5000},
        {"algorithm": f"vanilla-{'9' * 27}"},
    ],
)
def test_settings_beyond_measure_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"at most|between|less than|whole number|finite") as refusal:
        TrainSpec.of(settings)
    assert len(str(refusal.value)) < 300


def test_batches_of_one_image_are_refused_where_a_batch_norm_needs_more(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"batches of 1 image: the batch norms .* --batch-size 2 or more"):
        carry_out(tmp_path / "run", model="resnet18-w1", batch_size=1)
    assert not (tmp_path / "run").exists()


def test_a_network_larger_than_its_stored_weights_is_not_built(tmp_path: Path) -> None:
    carry_out(tmp_path / "run")
    changed(tmp_path / "run", resolved__model="mlp-w9999")
    import freeat as library

    with pytest.raises(InputError, match="parameters, and at most"):
        library.load(tmp_path / "run")
    spec = replace(RunFolder(tmp_path / "run").spec, model="linear")
    with pytest.raises(InputError, match=r"cannot be built|parameters, and at most"):
        build_network(spec, classes=10, shape=(1, 2**40, 2**40))


def test_names_that_are_no_text_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("n\udcff", "a\0b"):
        assert freeat(["train", *arguments(out=name)]) == 2
        assert "is not UTF-8 text" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="file systems elsewhere refuse such names")
def test_a_folder_whose_name_is_no_text_is_reported(tmp_path: Path) -> None:
    carry_out(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "r\udcff")
    assert freeat(["report", str(tmp_path), "--out", str(tmp_path / "report.html")]) == 0
    assert "r?" in (tmp_path / "report.html").read_text()


def test_markup_in_a_name_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["class"], [["[/b]"], ["[red]x[/red] :bug:"]], title="[/i]")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "[/i]",
        "class",
        "[/b]",
        "[red]x[/red] :bug:",
    ]
