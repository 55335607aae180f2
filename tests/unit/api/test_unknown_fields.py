"""A field that a body must not have is refused with the nearest name that it may have."""

from __future__ import annotations

import msgspec
import pytest

from rankd.api.calls import bodies
from rankd.errors import InvalidValue


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"board":"arcade","player":"ann","scores":3}', "scores: is not known here; did you mean score?"),
        (b'{"board":"arcade","player":"ann","score":3,"x":1}', "x: is not known here; known are board, "),
        (b'{"%s":1}' % (b"scor" * 10_000), "scorscor"),
    ],
)
def test_an_unknown_field_is_refused_with_its_remedy(body: bytes, problem: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        bodies.decode(msgspec.json.Decoder(bodies.Score), body)

    assert str(refused.value).startswith(problem)
    assert len(str(refused.value)) < 1_000
