"""What the archive says about one window instance: the manifest beside its file.

    standings/<board>.v<born>/<window instance>/manifest-<n>.json      weekly:2026-W18 is weekly@2026-W18
    standings/<board>.v<born>/<window instance>/<digest>.parquet       half the digest of its bytes

The valid manifest with the highest number counts. A player may be removed from a final window that is still in the
ranks: then there are a new file and a new manifest, and the old ones are deleted.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from rankd.archive.objects import ObjectStore, StoredObject
from rankd.domain.position import parse_positions
from rankd.errors import InvalidValue, RankdError
from rankd.projection.port import WindowSum

FORMAT = 1
ROOT = "standings"
MANIFEST_BYTES_MAX = 1024 * 1024
_MANIFEST = re.compile(r"manifest-([1-9][0-9]{0,8})\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FOLDER = re.compile(rf"{ROOT}/([a-z0-9][a-z0-9_.-]{{0,63}})\.v([0-9]+)/([A-Za-z0-9_.@-]+)")


class ArchivedFile(msgspec.Struct, frozen=True):
    """The Parquet file of a manifest."""

    name: str  # in the manifest's folder
    size: int  # bytes
    digest: str  # BLAKE2b of its bytes, hexadecimal
    rows: int
    footer_bytes: int  # Parquet's metadata at the end
    rows_per_group: int  # of every row group but the last


class Manifest(msgspec.Struct, frozen=True):
    """What is kept of one window instance."""

    format: int
    board: str
    born: int  # distinguishes a board from a deleted one of the same id
    version: int  # of the definition
    window: str  # the instance
    definition: dict[str, object]
    position: str  # of the ranks that were written
    closed_at: int | None  # ms since 1970: when the window became final
    top: int | None  # of each scope only the first so many are in the file
    instances: int  # these three as the ranks had them: all scopes, and the contributions of teams' players
    entries: int
    digest: str  # hexadecimal
    file: ArchivedFile

    @property
    def folder(self) -> str:
        """The folder of the manifest and its file."""
        return folder_of(self.board, self.born, self.window)

    @property
    def file_path(self) -> str:
        """The path of the file."""
        return f"{self.folder}/{self.file.name}"

    @property
    def window_sum(self) -> WindowSum:
        """The sum of the ranks that were written."""
        return WindowSum(self.instances, self.entries, int(self.digest, 16))


class NumberedManifest(NamedTuple):
    """A manifest and its number."""

    number: int
    manifest: Manifest

    @property
    def path(self) -> str:
        """The path of the manifest."""
        return manifest_path(self.manifest.folder, self.number)


class ArchivedWindow(NamedTuple):
    """The objects of a window instance."""

    newest: NumberedManifest | None  # the valid manifest with the highest number
    number: int  # the highest of any manifest, valid or not; 0 without one
    objects: dict[str, StoredObject]  # all, by path


def folder_of(board_id: str, born: int, instance: str) -> str:
    """Return the folder of a window instance."""
    return f"{ROOT}/{board_id}.v{born}/{instance.replace(':', '@')}"


def manifest_path(folder: str, number: int) -> str:
    """Return the path of a manifest."""
    return f"{folder}/manifest-{number}.json"


def file_name(digest: str) -> str:
    """Return the name of a file by its digest: half of it, since a longer one looks like a signature in messages."""
    return f"{digest[:32]}.parquet"


def is_window_folder(folder: str) -> bool:
    """Tell whether a folder is that of a window instance."""
    return _FOLDER.fullmatch(folder) is not None


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as it is stored: JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def read_window(objects: ObjectStore, folder: str) -> ArchivedWindow:
    """Return what the archive has of a window instance."""
    stored = {each.path: each for each in objects.list(folder)}
    numbered = sorted(
        (int(name[1]) for path in stored if (name := _MANIFEST.fullmatch(path.rpartition("/")[2]))), reverse=True
    )
    for number in numbered:
        data = objects.get_range(manifest_path(folder, number), 0, MANIFEST_BYTES_MAX)
        manifest = None if data is None else decode_manifest(data, folder)
        file = None if manifest is None else stored.get(manifest.file_path)
        if manifest is not None and file is not None and file.size == manifest.file.size:
            return ArchivedWindow(NumberedManifest(number, manifest), numbered[0], stored)
    return ArchivedWindow(None, numbered[0] if numbered else 0, stored)


def decode_manifest(data: bytes, folder: str) -> Manifest | None:
    """Return the manifest of a folder; None where these bytes are none."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
        parse_positions(manifest.position)
        is_whole = (
            manifest.format == FORMAT
            and manifest.folder == folder
            and _DIGEST.fullmatch(manifest.file.digest) is not None
            and manifest.file.name == file_name(manifest.file.digest)
            and 0 <= int(manifest.digest, 16) < 2**128
            and 0 < manifest.file.footer_bytes <= manifest.file.size
            and manifest.file.rows_per_group > 0
            and manifest.file.rows >= 0
        )
    except (msgspec.DecodeError, InvalidValue, ValueError, RankdError):
        return None
    return manifest if is_whole else None
