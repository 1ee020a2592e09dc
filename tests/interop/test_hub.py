"""Models on the Hugging Face Hub: pushed to and pulled from a local server with its API, by huggingface_hub."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

import freeat
from freeat.cli.main import run
from freeat.data import load_data
from freeat.errors import InputError
from freeat.files.hub import HubModel
from freeat.interop.export import push_export
from freeat.models import build
from freeat.runs.folder import RunFolder
from freeat.runs.open import MANIFEST, WEIGHTS, Reference
from freeat.training.trainer import Stopped
from hub_server import TOKEN, Hub, serving
from small_runs import carry_out

constants = pytest.importorskip("huggingface_hub.constants", reason="freeat[hub] is not installed")
NAME, NO_COMMIT = "me/free-digits", "0" * 40


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    carry_out(folder, model="cnn-w4", normalize="digits", lr=0.05)
    return folder


def set_endpoint(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """What HF_ENDPOINT does before huggingface_hub is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The Hub with an empty cache, and a user who is logged in."""
    with serving() as server:
        set_endpoint(monkeypatch, server.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.chdir(tmp_path)
        yield server


@given(st.text(st.sampled_from("ab.-_/@:~ \\\0é"), max_size=12))
def test_a_name_is_an_owner_and_a_name_and_never_a_path(text: str) -> None:
    try:
        found = HubModel.of(f"hf://{text}@{NO_COMMIT}")
    except InputError:
        return
    owner, name = found.name.split("/")
    assert owner.isascii()
    assert {owner, name}.isdisjoint({"", ".", ".."})
    assert str(found) == f"hf://{text}@{NO_COMMIT}"


def test_a_model_of_the_hub_is_no_architecture() -> None:
    with pytest.raises(InputError, match="--init-from hf://me/free"):
        build("hf://me/free", classes=3, shape=(3, 8, 8))


def images(n: int = 20) -> Tensor:
    return load_data("digits").test.batch(torch.arange(n))[0]


def pushed(trained: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The reference that a push prints."""
    assert run(["export", str(trained), "--push", NAME, "--json", *options]) == 0
    return str(json.loads(capsys.readouterr().out)["hub"])


def test_a_pulled_model_has_the_bits_that_were_pushed(
    hub: Hub, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = pushed(trained, capsys)
    (commit, files) = hub.repositories[NAME].commits[-1]
    assert reference == f"hf://{NAME}@{commit}"
    assert files.keys() == {".gitattributes", "README.md", MANIFEST, WEIGHTS}
    model = freeat.load(reference)
    assert torch.equal(model(images()), freeat.load(trained)(images()))
    assert model.classes == tuple("0123456789")
    assert not hub.repositories[NAME].private


def test_a_commit_that_was_fetched_needs_no_network(
    hub: Hub, trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = pushed(trained, capsys)
    expected = freeat.load(reference)(images())
    asked = len(hub.requests)
    set_endpoint(monkeypatch, "http://127.0.0.1:9")
    assert torch.equal(freeat.load(reference)(images()), expected)
    assert len(hub.requests) == asked
    with pytest.raises(InputError, match=r"cannot be reached.*hf://NAME@COMMIT"):
        freeat.load(f"hf://{NAME}")


def test_without_a_commit_the_newest_is_used_and_named(
    hub: Hub,
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = pushed(trained, capsys, "--robustbench", "--out", str(tmp_path / "first"))
    second = pushed(trained, capsys, "--out", str(tmp_path / "second"))
    assert first != second
    assert "robustbench.md" not in hub.repositories[NAME].commits[-1][1]  # of the export before
    for revision in ("", "@main"):
        assert str(Reference.of(f"hf://{NAME}{revision}").hub) == second
        assert f"what is used now is {second}" in caplog.text
        caplog.clear()
    assert str(Reference.of(first).hub) == first
    assert caplog.text == ""


def test_models_of_the_hub_are_named_like_any_other(
    hub: Hub, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = pushed(trained, capsys)
    commit = reference.partition("@")[2]
    sweep = ["--attack", "fgsm", "-n", "20", "--device", "cpu", "--json"]
    assert run(["evaluate", reference, *sweep]) == 0
    (own,) = json.loads(capsys.readouterr().out)["results"]
    assert own["model"] == f"free-digits@{commit[:12]}"
    assert run(["evaluate", str(trained), *sweep]) == 0
    (local,) = json.loads(capsys.readouterr().out)["results"]
    assert own["robust_accuracy"] == local["robust_accuracy"]
    assert run(["transfer", str(trained), "--to", reference, *sweep]) == 0
    assert "free-digits" in capsys.readouterr().out
    stored = list(Path("exports").glob("*.results/*"))
    assert stored
    assert run(["report", "exports", "--out", "page.html"]) == 0
    assert f"free-digits@{commit[:12]}" in Path("page.html").read_text(encoding="utf-8")


def test_images_are_classified_by_a_model_of_the_hub(
    hub: Hub, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    Image.fromarray((images(1)[0, 0].numpy() * 255).astype(np.uint8)).save(tmp_path / "digit.png")
    answers = []
    for model in (pushed(trained, capsys), str(trained)):
        assert run(["predict", model, str(tmp_path / "digit.png"), "--device", "cpu", "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out)["predictions"])
    assert answers[0] == answers[1]


def test_a_training_begins_with_a_model_of_the_hub_and_stores_its_commit(
    hub: Hub, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = pushed(trained, capsys)
    carry_out(tmp_path / "tuned", model="auto", init_from=f"hf://{NAME}")
    carry_out(tmp_path / "same", model="auto", init_from=str(trained))
    tuned, same = (RunFolder(tmp_path / name) for name in ("tuned", "same"))
    assert tuned.description.resolved.init_from == reference
    assert tuned.description.initial_weights == same.description.initial_weights
    assert tuned.description.resolved.model == "cnn-w4"


def test_a_run_is_resumed_with_the_commit_that_it_began_with(
    hub: Hub, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = pushed(trained, capsys)
    start = {"model": "auto", "init_from": f"hf://{NAME}"}
    batches = iter(range(100))
    with pytest.raises(Stopped):
        carry_out(tmp_path / "run", should_stop=lambda: next(batches) == 3, checkpoint_every=0.0, **start)
    carry_out(tmp_path / "other", model="cnn-w4", normalize="digits", seed=1, updates=1)
    push_export(freeat.export(tmp_path / "other", tmp_path / "replacing"), NAME)
    carry_out(tmp_path / "run", **start)
    carry_out(tmp_path / "whole", model="auto", init_from=reference)
    models = (freeat.load(tmp_path / name).state_dict() for name in ("run", "whole"))
    assert all(torch.equal(*pair) for pair in zip(*(model.values() for model in models), strict=True))


def test_bare_weights_of_the_hub_are_those_of_a_named_network(hub: Hub, tmp_path: Path) -> None:
    net = build("cnn-w4", classes=10, shape=(1, 8, 8), seed=3)
    save_file(net.state_dict(), tmp_path / "bare.safetensors")
    commit = hub.add("me/bare", {WEIGHTS: (tmp_path / "bare.safetensors").read_bytes(), "code.py": b"1/0"})
    reference = f"hf://me/bare@{commit}"
    with pytest.raises(InputError, match=rf"NETWORK@{reference}"):
        freeat.load(reference)
    asked = Reference.of(f"cnn-w4@{reference}")
    assert (asked.where, str(asked.hub)) == ("cnn-w4", reference)
    options = [
        "--data",
        "digits",
        "--norm",
        "l2",
        "--eps",
        "0.5",
        "--attack",
        "fgsm",
        "-n",
        "10",
        "--device",
        "cpu",
    ]
    assert run(["evaluate", f"cnn-w4@{reference}", *options]) == 0
    carry_out(tmp_path / "tuned", model="cnn-w4", init_from=reference)
    assert not any("code.py" in request for request in hub.requests)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hf://me/nothing", "no such model, or it is private"),
        ("hf://me/secret", "private"),
        ("hf://me/gated", "grants access on its page"),
        (f"hf://me/pickled@{NO_COMMIT}", "no such commit"),
        ("hf://me/pickled@nobranch", "no such commit"),
        ("hf://me/pickled", "no pickles and no code"),
        ("hf://me/huge", "bytes, and at most"),
        ("hf://me/damaged", "is damaged"),
        ("hf://me/forged", "SHA-256 differs"),
        ("hf://free", "write OWNER/NAME"),
        ("hf://../../etc/passwd", "write OWNER/NAME"),
        ("hf://me/a--b", "write OWNER/NAME"),
        ("hf://me/pickled@a b", "not a commit, branch or tag"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(
    hub: Hub,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reference: str,
    message: str,
) -> None:
    folder = freeat.export(trained, tmp_path / "exported")
    files = {name: (folder / name).read_bytes() for name in (MANIFEST, WEIGHTS)}
    hub.add("me/secret", files, private=True)
    hub.add("me/gated", files, gated=True)
    hub.add("me/pickled", {"pytorch_model.bin": b"cos\nsystem\n", "modeling.py": b"1/0"})
    hub.add("me/huge", files)
    if reference == "hf://me/huge":
        hub.claimed_sizes[WEIGHTS] = 2**40
    hub.add("me/damaged", {**files, MANIFEST: b"{" * 1000})
    hub.add("me/forged", {**files, WEIGHTS: files[WEIGHTS][:-1] + b"\x07"})
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(InputError, match=message):
        freeat.load(reference)
    fetched = [request for request in hub.requests if request.startswith("GET") and "resolve" in request]
    assert not any(name in request for request in fetched for name in ("pytorch_model.bin", "modeling.py"))


@pytest.mark.parametrize(
    ("name", "token", "message"),
    [
        (NAME, None, "hf auth login"),
        (NAME, "hf_wrong", "hf auth login"),
        ("someone/else", TOKEN, "may not do this"),
        ("noowner", TOKEN, "write OWNER/NAME"),
        ("me/taken", TOKEN, "was not pushed by freeat"),
    ],
)
def test_a_push_that_cannot_succeed_is_refused(
    hub: Hub, trained: Path, monkeypatch: pytest.MonkeyPatch, name: str, token: str | None, message: str
) -> None:
    hub.add("me/taken", {"model.bin": b"someone's work"})
    if token is None:
        monkeypatch.delenv("HF_TOKEN")
    else:
        monkeypatch.setenv("HF_TOKEN", token)
    folder = freeat.export(trained)
    before = {key: len(repository.commits) for key, repository in hub.repositories.items()}
    with pytest.raises(InputError, match=message):
        push_export(folder, name)
    assert {key: len(repository.commits) for key, repository in hub.repositories.items()} == before


def test_a_refused_push_writes_no_export(hub: Hub, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    assert run(["export", str(trained), "--push", NAME]) == 2
    assert run(["export", str(trained), "--private"]) == 2
    assert not Path("exports").exists()


def test_a_private_push_makes_a_private_model(
    hub: Hub, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pushed(trained, capsys, "--private")
    assert hub.repositories[NAME].private


def test_the_command_line_honours_the_endpoint_of_the_environment(
    hub: Hub, trained: Path, tmp_path: Path
) -> None:
    found = push_export(freeat.export(trained), NAME)
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    script = "import sys, freeat; print(*freeat.load(sys.argv[1]).classes)"
    call = [sys.executable, "-c", script, str(found)]
    done = subprocess.run(call, env={**os.environ, **own}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [*"0123456789"]
    assert any((tmp_path / "home" / "hub").rglob(MANIFEST))
