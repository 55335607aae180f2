"""The parameters of a query, as a browser and as an attacker may write them."""

from __future__ import annotations

import pytest

from rankd.api.http.request import QUERY_BYTES_MAX, QUERY_FIELDS_MAX, read_query
from rankd.errors import InvalidValue, RankdError, TooLarge

READ = {
    b"limit=10": {"limit": "10"},
    b"from=1&to=20": {"from": "1", "to": "20"},
    b"&&limit=10&": {"limit": "10"},
    b"window": {"window": ""},
    b"window=": {"window": ""},
    b"=10": {"": "10"},
    b"cursor=a=b==": {"cursor": "a=b=="},
    b"scope=country%3ABR": {"scope": "country:BR"},
    b"search=Zo%C3%AB+Lee%2B": {"search": "Zo\u00eb Lee+"},
    b"%6cimit=1%26to=2": {"limit": "1&to=2"},
    b"search=two+words": {"search": "two words"},
    b"search=100%": {"search": "100%"},
    b"search=%zz": {"search": "%zz"},
}
REFUSED = {
    b"limit=1&limit=2": "limit: must be sent once",
    b"limit=1&%6cimit=2": "limit: must be sent once",
    b"search=%ff": "query: must be %-escaped UTF-8",
    b"search=\xc3\xab": "query: must be %-escaped UTF-8",
    b"search=%ed%a0%80": "query: must be %-escaped UTF-8",  # half of a surrogate pair
}


@pytest.mark.parametrize(("raw", "query"), READ.items())
def test_a_query_is_read(raw: bytes, query: dict[str, str]) -> None:
    assert read_query(raw) == query


@pytest.mark.parametrize(("raw", "problem"), REFUSED.items())
def test_an_ambiguous_query_is_refused(raw: bytes, problem: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_query(raw)
    assert str(refused.value) == problem


def test_parameters_that_may_be_repeated_are_joined() -> None:
    assert read_query(b"topic=a&since=1&topic=b", ("topic",)) == {"topic": "a\nb", "since": "1"}


def test_a_query_is_bounded() -> None:
    fields = [b"p%d=" % number for number in range(QUERY_FIELDS_MAX)]
    assert len(read_query(b"&".join(fields))) == QUERY_FIELDS_MAX
    for raw, error in ((b"&".join([*fields, b"more="]), InvalidValue), (b"p=" + b"x" * QUERY_BYTES_MAX, TooLarge)):
        with pytest.raises(RankdError) as refused:
            read_query(raw)
        assert type(refused.value) is error
