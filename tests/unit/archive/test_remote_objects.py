"""An archive in a bucket: what is said where it refuses us, fails, or answers nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.servers.s3 import SECRET_KEY, S3Server

from rankd.archive import remote_objects
from rankd.archive.folder_objects import FolderObjects
from rankd.archive.open_objects import open_objects
from rankd.archive.remote_objects import RemoteObjects
from rankd.errors import ArchiveRefused, ArchiveUnavailable, InvalidValue

PATH = "standings/manifest-1.json"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_objects, "REQUEST_S", 0.5)
    monkeypatch.setattr(remote_objects, "RETRIES_MAX", 1)
    monkeypatch.setattr(remote_objects, "BACKOFF_S", 0.01)


def each_call(objects: RemoteObjects, error: type[Exception], message: str) -> None:
    for call in (
        lambda: objects.put_new(PATH, b"final"),
        lambda: objects.get(PATH),
        lambda: objects.get_range(PATH, 0, 1),
        lambda: list(objects.list("standings")),
        lambda: objects.delete(PATH),
    ):
        with pytest.raises(error, match=message) as refusal:
            call()
        assert SECRET_KEY not in str(refusal.value)


def test_a_bucket_that_does_not_exist_is_named(s3: S3Server, s3_credentials: None) -> None:
    objects = RemoteObjects("s3://no-such-bucket/rankd", endpoint=s3.endpoint)
    each_call(objects, ArchiveRefused, "s3://no-such-bucket/rankd: .*bucket.*archive.url")


@pytest.mark.parametrize(("variable", "value"), [("AWS_SECRET_ACCESS_KEY", "wrong"), ("AWS_ACCESS_KEY_ID", "nobody")])
def test_credentials_that_are_refused_are_named(
    s3: S3Server, s3_credentials: None, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    bucket = s3.new_bucket()
    monkeypatch.setenv(variable, value)
    each_call(
        RemoteObjects(f"s3://{bucket}", endpoint=s3.endpoint),
        ArchiveRefused,
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


def test_a_server_that_is_away_is_tried_again_and_comes_back(own_s3: S3Server, s3_credentials: None) -> None:
    objects = RemoteObjects(f"s3://{own_s3.new_bucket()}", endpoint=own_s3.endpoint)
    own_s3.kill()
    each_call(objects, ArchiveUnavailable, "does not answer; it is tried again")

    own_s3.start()
    assert objects.put_new(PATH, b"final")
    assert objects.get(PATH) == b"final"


def test_a_server_that_answers_nothing_is_given_up(own_s3: S3Server, s3_credentials: None) -> None:
    objects = RemoteObjects(f"s3://{own_s3.new_bucket()}", endpoint=own_s3.endpoint)
    objects.put_new("other", b"")
    own_s3.pause()
    try:
        with pytest.raises(ArchiveUnavailable, match="does not answer") as refusal:
            objects.get("other")
    finally:
        own_s3.go_on()

    assert "127.0.0.1" not in refusal.value.public_message
    assert objects.get("other") == b""


@pytest.mark.parametrize(
    ("url", "shown"),
    [("", "/data/archive"), ("/srv/kept", "/srv/kept"), ("kept", "kept"), ("file:///srv/kept", "/srv/kept")],
)
def test_a_path_is_a_folder(url: str, shown: str) -> None:
    objects = open_objects(url, Path("/data/archive"))
    assert isinstance(objects, FolderObjects)
    assert objects.url == shown


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a/b", "gs://bucket/a", "az://container/a"])
def test_a_bucket_is_opened_without_asking_it(url: str) -> None:
    objects = open_objects(url, Path("/data/archive"))
    assert isinstance(objects, RemoteObjects)
    assert objects.url == url


@pytest.mark.parametrize(
    "url", ["http://host/a", "s3:/bucket", "s3://", "s3://user:hunter2@bucket/a", "ftp://host", "file://host/a", "a\0b"]
)
def test_another_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"archive\.url: must ") as refusal:
        open_objects(url, Path("/data/archive"))
    assert "hunter2" not in str(refusal.value)
