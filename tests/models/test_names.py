"""The grammar of the networks' names."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freeat.errors import InputError
from freeat.models import Architecture, catalogue, parse, size

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
def test_any_text_parses_or_is_refused(name: str) -> None:
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
