"""Nothing secret is shown: not by `config show`, not in logs, not in errors."""

from __future__ import annotations

import msgspec
import pytest

from rankd.config.masking import MASK, masked_url, masking, secrets_of, shown
from rankd.config.model import SECRETS, Auth, Config, Ledger

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
    config = Config(auth=Auth(jwt_secret=SECRET), ledger=Ledger(url="postgresql://rankd:hunter2@db"))
    sections = shown(config)

    assert set(sections) == set(Config.__struct_fields__)
    assert sections["auth"]["jwt_secret"] == MASK
    assert sections["ledger"]["url"] == "postgresql://rankd:***@db"
    assert SECRET not in repr(sections)


def test_a_secret_that_is_not_set_is_shown_as_such() -> None:
    assert shown(Config())["auth"]["jwt_secret"] == ""


def test_every_secret_is_a_key_there_is() -> None:
    assert all(hasattr(getattr(Config(), key.split(".")[0]), key.split(".")[1]) for key in SECRETS)


def test_what_is_shown_can_be_read_back() -> None:
    assert msgspec.convert(shown(Config()), Config) == Config()


def test_secrets_are_found_wherever_they_turn_up() -> None:
    config = Config(auth=Auth(jwt_secret=SECRET), ledger=Ledger(url="postgresql://rankd:hunter%402@db"))
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


def test_a_short_secret_does_not_tear_holes_into_every_word() -> None:
    assert masking(["a"])("arcade") == "arcade"
