"""Nothing secret is shown: not by `config show`, not in logs, not in errors."""

from __future__ import annotations

import time

import msgspec
import pytest
from tests.timing import BUSY_MACHINE

from rankd.config.masking import MASK, TEXT_CHARACTERS_MAX, Mask, masked_url, masking, secrets_of, shown
from rankd.config.model import SECRETS, AuthConfig, Config, LedgerConfig, ServerConfig
from rankd.shortening import CUT

SECRET = "s3cret-s3cret-s3cret-s3cret-s3cret"


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://rankd:hunter2@db/rankd", "postgresql://rankd:***@db/rankd"),
        ("redis://:hunter2@r:6379/0", "redis://:***@r:6379/0"),
        ("redis+cluster://u:p:q/r@r", "redis+cluster://u:***@r"),
        ("kafka://k/scores?sasl.password=x&group=g", "kafka://k/scores?sasl.password=***&group=g"),
        ("postgresql://db/rankd", "postgresql://db/rankd"),
        ("postgresql://rankd@db/rankd", "postgresql://rankd@db/rankd"),
        ("sqlite:rankd-data", "sqlite:rankd-data"),
    ],
)
def test_a_url_keeps_everything_but_its_password(url: str, masked: str) -> None:
    assert masked_url(url) == masked


def test_every_key_is_shown_and_no_secret() -> None:
    config = Config(
        server=ServerConfig(metrics_token="t0ken-t0ken"),
        auth=AuthConfig(jwt_secret=SECRET),
        ledger=LedgerConfig(url="postgresql://rankd:hunter2@db"),
    )
    sections = shown(config)

    assert set(sections) == set(Config.__struct_fields__)
    assert sections["auth"]["jwt_secret"] == sections["server"]["metrics_token"] == MASK
    assert sections["ledger"]["url"] == "postgresql://rankd:***@db"
    assert SECRET not in repr(sections)


def test_a_secret_that_is_not_set_is_shown_as_such() -> None:
    assert shown(Config())["auth"]["jwt_secret"] == ""


def test_every_secret_is_a_key_there_is() -> None:
    assert all(hasattr(getattr(Config(), key.split(".")[0]), key.split(".")[1]) for key in SECRETS)


def test_what_is_shown_can_be_read_back() -> None:
    assert msgspec.convert(shown(Config()), Config) == Config()


def test_secrets_are_found_wherever_they_turn_up() -> None:
    config = Config(auth=AuthConfig(jwt_secret=SECRET), ledger=LedgerConfig(url="postgresql://rankd:hunter%402@db"))
    secrets = secrets_of(config)

    assert set(secrets) == {SECRET, "hunter%402", "hunter@2"}
    assert masking(secrets)(f"cannot log in with hunter@2 nor {SECRET}!") == "cannot log in with *** nor ***!"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Bearer abc.def-1", "Authorization: Bearer ***"),
        ("GET /v1/stream?ticket=k3J9&topic=top:arcade", "GET /v1/stream?ticket=***&topic=top:arcade"),
        ('{"token": "abc", "id": "7"}', '{"token": "***", "id": "7"}'),
        ("signature=00ff", "signature=***"),
        ("connect redis://:pw@r failed", "connect redis://:***@r failed"),
        ("signature: does not match", "signature: does not match"),
        ("arcade has 3 players", "arcade has 3 players"),
    ],
)
def test_what_looks_like_a_secret_is_masked_in_any_text(text: str, masked: str) -> None:
    assert masking()(text) == masked


PIECES = [
    *(
        "http://",
        "a:",
        "://user:",
        "bearer ",
        "token=",
        "rk_",
        "'\"",
        "\x00\x1b",
        "e\u0301\u202e",
        "\ud800",
        "_",
        "\\",
        "9",
    ),
    *("a.a-", "eyJ", "eyJabcdefg.", "'token' : '", "://a", "0a", CUT, f"://a:b{CUT}", f"rs_a{CUT}", "@", "a://b:1/"),
    *("signature: a", "sig: ", "Signature=", "://:@", " ", "\n"),
]
KIB = 1024
LONG_ENOUGH = 64 * KIB
GROWTH_MAX = 3  # of time for a text twice as long; four times is a square
NOISE_S = 0.05 * BUSY_MACHINE


@pytest.mark.timed
@pytest.mark.parametrize(
    ("piece", "mask", "smallest"),
    [
        *((piece, masking(characters_max=8 * KIB * KIB), LONG_ENOUGH) for piece in PIECES),
        *((piece, masking(characters_max=8 * KIB * KIB), 512 * KIB) for piece in ("http://", "_")),
        *((piece, masked_url, LONG_ENOUGH) for piece in ("http://", "a.a-", "://a", "://a:")),
    ],
)
def test_masking_takes_a_time_that_grows_with_the_text_only(piece: str, mask: Mask, smallest: int) -> None:
    def processor_s(size: int) -> float:
        text = piece * (size // len(piece))
        began_s = time.thread_time()
        mask(text)
        return time.thread_time() - began_s

    one_s, two_s, four_s = (processor_s(size) for size in (smallest, 2 * smallest, 4 * smallest))
    assert two_s < GROWTH_MAX * one_s + NOISE_S
    assert four_s < GROWTH_MAX * two_s + NOISE_S


@pytest.mark.timed
@pytest.mark.parametrize("piece", PIECES)
def test_a_long_text_is_cut_before_it_is_masked(piece: str) -> None:
    text = piece * (4 * KIB * KIB // len(piece))
    began_s = time.thread_time()
    masked = masking()(text)

    assert time.thread_time() - began_s < 0.1 * BUSY_MACHINE
    assert len(masked) < 2 * TEXT_CHARACTERS_MAX
    assert masked.endswith(" characters more")


@pytest.mark.parametrize("before", range(-50, 5))
def test_no_half_of_a_secret_is_left_where_a_text_is_cut(before: int) -> None:
    """Wherever the cut falls: within a secret of the configuration, a key, a password, a token, a signature."""
    secrets = {
        "configured": "open sesame, please",
        "key": "rs_Zk9x1QpZk9x1QpZk9x1QpZk9x1QpZk9",
        "password": "redis://user:hunter2-hunter2-hunter2@cache",
        "named": "password=hunter2-hunter2-hunter2",
        "bearer": "Bearer hunter2-hunter2-hunter2",
        "header": "authorization: hunter2-hunter2-hunter2",
    }
    for name, secret in secrets.items():
        text = "x" * (TEXT_CHARACTERS_MAX + before - 1) + " " + secret + " and more" * 10
        masked = masking(["open sesame, please"])(text)

        for part in ("open sesame, p", "Zk9x", "hunt"):
            assert part not in masked, (name, masked[-80:])


def test_secrets_that_reach_into_each_other_are_not_cut_either() -> None:
    text = "a" * 90 + "sesame-open-sesame-open" + "b" * 90
    for end in range(85, 120):
        masked = masking(["sesame-open", "open-sesame"], end)(text)

        assert not any(part in masked for part in ("sesa", "open"))


def test_a_short_secret_does_not_tear_holes_into_every_word() -> None:
    assert masking(["a"])("arcade") == "arcade"
