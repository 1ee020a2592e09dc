"""Every series of a picture has a look of its own."""

from freeat.reports.style import LINES, OKABE_ITO, look


def test_no_two_series_look_the_same() -> None:
    looks = [tuple(look(place).values()) for place in range(len(OKABE_ITO) * len(LINES))]
    assert len(set(looks)) == len(looks)
