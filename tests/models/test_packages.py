"""Networks of timm and torchvision by name: against the packages where they import, and against substitutes of them."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import freeat
from freeat.cli.main import run
from freeat.cli.options import typed_code
from freeat.compute.frozen import frozen_eval
from freeat.errors import InputError
from freeat.models import build
from freeat.models.normalize import network_of
from freeat.models.packages import published
from freeat.runs.build import build_network
from freeat.runs.folder import RunFolder
from freeat.runs.open import ExportedFolder, file_model
from freeat.runs.spec import TrainSpec
from small_runs import carry_out, noise_file

SUBSTITUTES = Path(__file__).parents[1] / "support" / "substitutes"


@dataclass(frozen=True, kw_only=True)
class Networks:
    """Networks of a package: one of fixed size with its arguments, and one for images of any size."""

    fixed: str
    args: dict[str, Any]
    side: int
    free: str


PACKAGES = {
    "substitute timm": Networks(
        fixed="timm:vit_small_patch4_16", args={}, side=16, free="timm:resnet3"
    ),
    "timm": Networks(
        fixed="timm:vit_tiny_patch16_224",
        args={"img_size": 32, "depth": 1},
        side=32,
        free="timm:mobilenetv3_small_050",
    ),
    "torchvision": Networks(
        fixed="torchvision:vit_b_16",
        args={"image_size": 32},
        side=32,
        free="torchvision:squeezenet1_1",
    ),
}  # fmt: skip


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let both packages be imported anew; afterwards those of before are back."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def substitutes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    forget(monkeypatch)
    monkeypatch.syspath_prepend(SUBSTITUTES)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("timm", "torchvision")]:
        sys.modules.pop(name)


@pytest.fixture(
    params=[
        "substitute timm",
        "timm",
        pytest.param("torchvision", marks=pytest.mark.slow),
    ]  # its smallest ViT has 86 M
)
def networks(request: pytest.FixtureRequest) -> Networks:
    """The networks of a package, which is skipped with the reason where it does not import."""
    if request.param.startswith("substitute"):
        request.getfixturevalue("substitutes")
    else:
        try:
            __import__(request.param)
        except Exception as error:
            pytest.skip(f"{request.param} does not import here: {error}")
    return PACKAGES[request.param]


def spec_of(model: str, args: dict[str, Any] | None = None, **settings: Any) -> TrainSpec:
    return TrainSpec.of({"model": model, "model_args": args, **settings})


def images(*shape: int) -> Tensor:
    return torch.rand(2, *shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(3, 40, 40), (3, 8, 8), (1, 8, 8)], ids=str)
def test_logits_are_those_of_the_network_on_fitted_and_normalized_images(
    networks: Networks, shape: tuple[int, int, int]
) -> None:
    for name, args in ((networks.fixed, networks.args), (networks.free, {})):
        model = build_network(spec_of(name, args), classes=7, shape=shape).eval()
        x = images(*shape)
        said = published(name)
        mean, std = (
            torch.tensor(values).view(3, 1, 1) for values in (said.normalization.mean, said.normalization.std)
        )
        fitted = x.expand(2, 3, *shape[1:])
        if name == networks.fixed:
            sides = (networks.side, networks.side)
        else:
            sides = tuple(max(own, least) for own, least in zip(shape[1:], said.smallest, strict=True))
        if sides != shape[1:]:
            fitted = nn.functional.interpolate(fitted, size=sides, mode="bilinear", align_corners=False)
        expected = network_of(model)((fitted - mean) / std)
        assert expected.shape == (2, 7)
        assert torch.equal(model(x), expected)


def test_weights_follow_the_seed_and_no_draw_is_taken_from_outside(networks: Networks) -> None:
    state = torch.get_rng_state()
    first, same, other = (
        build(networks.free, classes=3, shape=(3, 32, 32), seed=seed).state_dict() for seed in (1, 1, 2)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_a_run_is_trained_exported_and_opened_without_trust(
    networks: Networks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    carry_out(
        tmp_path / "run", trust_code=False, model=networks.fixed, model_args=networks.args, updates=2, lr=0.01
    )
    folder = RunFolder(tmp_path / "run")
    package = networks.fixed.partition(":")[0]
    assert folder.description.chosen.package == f"{package} {sys.modules[package].__version__}"
    assert folder.description.resolved.normalize == str(published(networks.fixed).normalization)
    assert any("in its first layer; ε is that of the 8×8 images" in note for note in folder.description.notes)
    exported = freeat.export(tmp_path / "run", tmp_path / "exported")
    assert not ExportedFolder(exported).manifest.needs_code
    x = images(1, 8, 8)
    logits = freeat.load(tmp_path / "run")(x)
    assert torch.equal(freeat.load(exported)(x), logits)
    weights = exported / "model.safetensors"
    alone = file_model(f"{networks.fixed}@{weights}", classes=10, shape=(1, 8, 8), args=networks.args)
    assert torch.equal(alone(x), logits)
    caplog.clear()
    monkeypatch.setattr(sys.modules[package], "__version__", "99.0")
    freeat.load(exported)
    assert f"opened with {package} 99.0: its logits may differ" in caplog.text


def test_a_network_is_tuned_from_a_local_file_with_a_new_head(networks: Networks, tmp_path: Path) -> None:
    settings = {
        "model": networks.fixed,
        "model_args": networks.args,
        "updates": 1,
        "lr": 1e-6,
        "weight_decay": 0,
    }
    net = network_of(
        build_network(spec_of(networks.fixed, networks.args, seed=5), classes=10, shape=(1, 8, 8))
    )
    save_file(
        {name: value.contiguous() for name, value in net.state_dict().items()}, tmp_path / "w.safetensors"
    )
    torch.save({"model": net.state_dict()}, tmp_path / "w.pt")
    ten = carry_out(tmp_path / "ten", init_from=str(tmp_path / "w.pt"), **settings)
    assert RunFolder(tmp_path / "ten").description.new_head == ()
    assert ten.update == 1
    data = noise_file(tmp_path / "three.npz", 3)
    carry_out(tmp_path / "three", init_from=str(tmp_path / "w.safetensors"), data=data, **settings)
    described = RunFolder(tmp_path / "three").description
    assert {name.rpartition(".")[2] for name in described.new_head} == {"weight", "bias"}
    assert (
        "is new, for 3 classes: w.safetensors has another number" in described.notes[0] + described.notes[1]
    )
    tuned = RunFolder(tmp_path / "three").weights()
    for name, value in net.state_dict().items():
        if f"model.{name}" not in described.new_head:
            assert torch.allclose(tuned[f"model.{name}"], value, atol=1e-3), name


def test_weights_that_differ_in_more_than_the_head_are_refused(networks: Networks, tmp_path: Path) -> None:
    net = network_of(build_network(spec_of(networks.free), classes=10, shape=(1, 8, 8)))
    state = {name: value.contiguous() for name, value in net.state_dict().items()}
    first = next(name for name, value in state.items() if value.ndim == 4)
    for change, message in (
        ({first: torch.zeros(1, 2, 3, 4)}, "only the head may differ"),
        ({"further": torch.zeros(2)}, "not in the model"),
    ):
        save_file({**state, **change}, tmp_path / "w.safetensors")
        with pytest.raises(InputError, match=message):
            carry_out(tmp_path / "run", model=networks.free, init_from=str(tmp_path / "w.safetensors"))
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("substitutes")
def test_all_heads_that_a_package_names_are_replaced(tmp_path: Path) -> None:
    net = network_of(build_network(spec_of("timm:deit_small_distilled"), classes=10, shape=(1, 8, 8)))
    save_file(net.state_dict(), tmp_path / "w.safetensors")
    data = noise_file(tmp_path / "three.npz", 3)
    start = {"init_from": str(tmp_path / "w.safetensors"), "data": data, "updates": 1}
    carry_out(tmp_path / "run", model="timm:deit_small_distilled", **start)
    heads = RunFolder(tmp_path / "run").description.new_head
    assert {name.split(".")[1] for name in heads} == {"head", "head_dist"}


@pytest.mark.usefixtures("substitutes")
@pytest.mark.parametrize(
    ("model", "head"), [("timm:vit_small_patch4_16", "head"), ("torchvision:small_net", "fc")]
)
def test_published_weights_are_fetched_once_and_their_head_is_announced(
    tmp_path: Path, model: str, head: str
) -> None:
    settings = {"model": model, "model_args": {"pretrained": True}, "updates": 1}
    drawn = build(model, classes=10, shape=(1, 8, 8)).state_dict()
    with_weights = build(model, classes=10, shape=(1, 8, 8), args={"pretrained": True}).state_dict()
    assert drawn.keys() == with_weights.keys()
    differing = {name for name in drawn if not torch.equal(drawn[name], with_weights[name])}
    assert any(head not in name for name in differing)
    carry_out(tmp_path / "run", **settings)
    described = RunFolder(tmp_path / "run").description
    assert set(described.new_head) == {f"model.{head}.weight", f"model.{head}.bias"}
    assert any("the published model has another number" in note for note in described.notes)
    fetched = getattr(sys.modules["timm"], "fetched", []) if model.startswith("timm") else []
    before = len(fetched)
    freeat.load(tmp_path / "run")
    assert len(fetched) == before
    with pytest.raises(InputError, match="choose one"):
        carry_out(tmp_path / "both", init_from=str(tmp_path / "run"), **settings)


@pytest.mark.usefixtures("substitutes")
@pytest.mark.parametrize(
    ("model", "args", "shape", "message"),
    [
        ("timm:vit_smal_patch4_16", {}, (3, 8, 8), r"did you mean vit_small_patch4_16.*timm\.list_models\(\)"),
        ("timm:../vit", {}, (3, 8, 8), "write the name of a network"),
        ("timm:hf_hub:someone/model", {}, (3, 8, 8), "write the name of a network"),
        ("timm:resnet3.unknown", {}, (3, 8, 8), "leave out the part after the point"),
        ("timm:resnet3", {}, (2, 8, 8), "grey or RGB"),
        ("timm:resnet3", {"num_classes": 3}, (3, 8, 8), "num_classes follows from the data"),
        ("timm:resnet3", {"checkpoint_path": "/etc/passwd"}, (3, 8, 8), "--init-from FILE"),
        ("timm:resnet3", {"nonsense": 3}, (3, 8, 8), "nonsense"),
        ("timm:vit_small_patch4_16", {"embed_dim": 10**9}, (3, 8, 8), "parameters, and at most"),
        ("torchvision:detector", {}, (3, 8, 8), "has no model 'detector'"),
        ("torchvision:small_inception", {}, (3, 8, 8), "aux_logits=false"),
        ("torchvision:small_net", {"weights": "DEFAULT"}, (3, 8, 8), "pretrained=true"),
    ],
)  # fmt: skip
def test_wrong_names_and_arguments_are_refused(
    model: str, args: dict[str, Any], shape: tuple[int, int, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build(model, classes=3, shape=shape, args=args)


@pytest.mark.usefixtures("substitutes")
def test_arguments_choose_the_size_and_further_logits() -> None:
    model = build("timm:vit_small_patch4_16", classes=3, shape=(3, 8, 8), args={"img_size": 8})
    assert model(images(3, 8, 8)).shape == (2, 3)
    assert model is network_of(model)  # nothing is resized
    assert build("torchvision:small_inception", classes=3, shape=(3, 8, 8), args={"aux_logits": False})(
        images(3, 8, 8)
    ).shape == (2, 3)


@pytest.mark.usefixtures("substitutes")
def test_batch_norms_behind_the_first_layers_are_fused_while_a_model_is_attacked() -> None:
    model: Any = build_network(spec_of("timm:resnet3"), classes=3, shape=(1, 2, 2)).eval()
    x = images(1, 2, 2)
    expected = model(x)
    with frozen_eval(model):
        assert "forward" in vars(model.model.bn)
        assert torch.allclose(model(x), expected, atol=1e-5)
    assert torch.equal(model(x), expected)


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_a_missing_or_broken_package_is_named_with_the_remedy(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"needs the package {package}.*freeat\[{package}\]"):
        build(f"{package}:resnet18", classes=3, shape=(3, 8, 8))
    monkeypatch.delitem(sys.modules, package)
    (tmp_path / f"{package}.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"does not import \(RuntimeError: operator torchvision::nms"):
        build(f"{package}:resnet18", classes=3, shape=(3, 8, 8))


def test_a_typed_algorithm_is_trusted_beside_a_package_that_a_file_names() -> None:
    settings = {"model": "timm:resnet3", "algorithm": "noise:Noise"}
    assert typed_code({"algorithm": "noise:Noise"}, settings)
    assert not typed_code({}, settings)
    assert not typed_code({}, {"model": "timm:resnet3"})
    assert not typed_code({"algorithm": "noise:Noise"}, settings | {"model": "timm.models:resnet18"})


@pytest.mark.usefixtures("substitutes")
def test_a_settings_file_names_a_package_without_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(
        "model: timm:resnet3\ndata: digits\ntrain_size: 60\nupdates: 2\nfinal_size: 20\n"
    )
    assert run(["train", "spec.yaml", "--out", "run", "--device", "cpu"]) == 0
    assert run(["export", "run", "--out", "out"]) == 0
    card = Path("out/README.md").read_text(encoding="utf-8")
    assert "needs `timm 1.0.0`" in card
    assert load_file("out/model.safetensors").keys() >= {"normalize.mean", "model.fc.weight"}
    capsys.readouterr()
    sweep = ["--attack", "fgsm", "-n", "20", "--device", "cpu", "--json"]
    assert run(["evaluate", "out", *sweep]) == 0
    (stored,) = json.loads(capsys.readouterr().out)["results"]
    data = ["--data", "digits", "--norm", "linf", "--eps", "8/255"]
    assert run(["evaluate", "timm:resnet3@out/model.safetensors", *data, *sweep]) == 0
    (alone,) = json.loads(capsys.readouterr().out)["results"]
    assert alone["robust_accuracy"] == stored["robust_accuracy"]
