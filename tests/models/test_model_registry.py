"""The grammar of the networks' names, and building: weights follow the seed and nothing else."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.models import Architecture, build, catalogue, parse, size
from freeat.models.normalize import Normalization

BASES = ["resnet18", "resnet50", "preact-resnet18", "wrn34-10", "wrn16-4", "vgg19", "cnn", "mlp"]


@given(
    base=st.sampled_from(["resnet18", "resnet50", "preact-resnet18", "vgg19", "cnn"]),
    width=st.none() | st.integers(1, 9999),
    stem=st.sampled_from(["", "s2", "s4"]),
    norm=st.sampled_from(["", "bn", "gn", "nonorm"]),
    activation=st.sampled_from(["", "relu", "softplus", "silu"]),
    data=st.data(),
)
def test_suffixes_come_in_any_order_and_the_canonical_name_reads_back(
    base: str, width: int | None, stem: str, norm: str, activation: str, data: st.DataObject
) -> None:
    suffixes = [word for word in (f"w{width}" if width else "", stem, norm, activation) if word]
    architectures = {
        parse("-".join([base, *data.draw(st.permutations(suffixes))])),
        parse("-".join([base.upper(), *suffixes])),
    }
    assert len(architectures) == 1
    (architecture,) = architectures
    assert parse(str(architecture)) == architecture
    assert architecture.base == base
    assert architecture.stem_stride == {"s2": 2, "s4": 4}.get(stem, 1)
    assert architecture.norm == {"gn": "group", "nonorm": "none"}.get(norm, "batch")
    assert architecture.activation == (activation or "relu")
    if width:
        assert architecture.width == width


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("resnet18-bn-w64-relu", "resnet18"),
        ("resnet18-silu-gn-s2-w16", "resnet18-w16-s2-gn-silu"),
        ("preact-resnet18-nonorm", "preact-resnet18-nonorm"),
        ("WRN16-4-gn", "wrn16-4-gn"),
        ("cnn-w32", "cnn"),
        ("mlp-w256", "mlp"),
        ("linear", "linear"),
    ],
)
def test_canonical_names(name: str, canonical: str) -> None:
    assert str(parse(name)) == canonical


def test_every_suffix_changes_the_network() -> None:
    names = ["resnet18", "resnet18-w16", "resnet18-s2", "resnet18-s4", "resnet18-gn", "resnet18-silu"]
    assert all(parse(a) != parse(b) for a, b in itertools.combinations(names, 2))
    assert parse("resnet18-w16") == Architecture(base="resnet18", width=16)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnt18", "unknown model 'resnt18': did you mean 'resnet18'"),
        ("resnt18-w16", "did you mean 'resnet18'"),
        ("", "unknown model ''"),
        ("-w16", "unknown model"),
        ("resnet18-", "unknown suffix of model 'resnet18' ''"),
        ("resnet18-w0", "unknown suffix of model 'resnet18' 'w0'.*w16"),
        ("resnet18-w1e9", "unknown suffix"),
        ("resnet18-w99999", "unknown suffix"),
        ("resnet18-softpls", "did you mean 'softplus'"),
        ("resnet18-w16-w32", "sets its width twice"),
        ("resnet18-gn-nonorm", "sets its norm twice"),
        ("wrn35-10", "depth 35.*6n \\+ 4.*wrn34-10"),
        ("wrn4-1", "depth 4"),
        ("wrn34", "unknown model 'wrn34': did you mean 'wrn34-10'"),
        ("wrn34-10-w16", "unknown suffix of model 'wrn34-10' 'w16'"),
        ("mlp-gn", "unknown suffix of model 'mlp' 'gn'"),
        ("linear-relu", "takes no suffix"),
    ],
)
def test_wrong_names_are_refused_with_the_remedy(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(name)


def test_a_network_without_a_width_suffix_does_not_suggest_one() -> None:
    with pytest.raises(InputError) as error:
        parse("wrn16-4-w16")
    assert "w16" not in str(error.value).split("known:")[-1]


@given(st.text(alphabet="resntw1-840gvcnl:", max_size=20))
def test_any_model_name_parses_or_is_refused(name: str) -> None:
    try:
        architecture = parse(name)
    except InputError:
        return
    assert parse(str(architecture)) == architecture


def test_the_catalogue_lists_canonical_names_that_can_be_built() -> None:
    entries = catalogue()
    names = [entry.name for entry in entries]
    assert set(BASES) <= set(names)
    assert len(set(names)) == len(names)
    assert len({entry.about for entry in entries}) == len(entries)
    for entry in entries:
        assert str(parse(entry.name)) == entry.name
        assert size(entry.name) > 0


def test_about_says_what_the_suffixes_changed() -> None:
    assert parse("cnn-w16-s2-gn-silu").about.endswith(
        "width 16, stem of stride 2, group norm, silu activation"
    )


def weights(seed: int, name: str = "cnn-w4") -> list[torch.Tensor]:
    return list(build(name, classes=10, shape=(3, 8, 8), seed=seed).parameters())


@pytest.mark.parametrize("name", ["cnn-w4", "wrn10-1", "resnet18-w4-nonorm", "mlp-w8"])
def test_weights_are_a_function_of_the_seed(name: str) -> None:
    torch.manual_seed(1)
    first = weights(7, name)
    torch.manual_seed(2)
    assert all(map(torch.equal, first, weights(7, name)))
    assert not all(map(torch.equal, first, weights(8, name)))


def test_seeds_beyond_32_bits_differ() -> None:
    assert not all(map(torch.equal, weights(5), weights(5 + 2**32)))


def test_building_does_not_change_the_global_generator() -> None:
    before = torch.get_rng_state()
    build("cnn-w4", classes=10, shape=(3, 8, 8))
    size("resnet18")
    with pytest.raises(InputError):
        build("cnnn", classes=10, shape=(3, 8, 8))
    assert torch.equal(torch.get_rng_state(), before)


def test_default_dtype_and_device_do_not_reach_the_weights() -> None:
    expected = weights(0)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            actual = weights(0)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(map(torch.equal, expected, actual))
    assert {p.dtype for p in actual} == {torch.float32}


def test_a_normalized_model_is_the_model_of_normalized_images() -> None:
    normalize = Normalization.parse("cifar10")
    plain = build("cnn-w4", classes=10, shape=(3, 8, 8), seed=3).eval()
    wrapped = build("cnn-w4", classes=10, shape=(3, 8, 8), seed=3, normalize=normalize).eval()
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (normalize.mean, normalize.std))
    torch.testing.assert_close(wrapped(x), plain((x - mean) / std))


@pytest.mark.parametrize(
    ("classes", "shape", "message"),
    [
        (1, (3, 8, 8), "1 classes: give at least 2"),
        (10, (3, 8), "shape \\(3, 8\\)"),
        (10, (0, 8, 8), "all at least 1"),
    ],
)
def test_invalid_classes_and_shapes_are_refused(
    classes: int, shape: tuple[int, int, int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build("cnn", classes=classes, shape=shape)


def test_named_networks_take_no_arguments() -> None:
    with pytest.raises(InputError, match=r"takes no arguments.*suffixes"):
        build("cnn", classes=10, shape=(3, 8, 8), args={"width": 16})
