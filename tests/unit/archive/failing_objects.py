"""An object store that fails at a chosen step, before or after the step was done, as a process that is killed there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankd.archive.objects import ObjectStore, StoredObject


class Killed(BaseException):
    """The process ends here."""


class FailingObjects:
    """Passes calls on, and raises at one of them."""

    def __init__(self, objects: ObjectStore, at: int = -1, problem: BaseException | None = None) -> None:
        """Step 2n is before call n, step 2n + 1 after it; `problem` is what is raised at step `at`."""
        self._objects = objects
        self._at = at
        self._problem = problem or Killed()
        self.steps = 0

    @property
    def url(self) -> str:
        return self._objects.url

    @property
    def is_local(self) -> bool:
        return self._objects.is_local

    def put_new(self, path: str, data: bytes) -> bool:
        return bool(self._call("put_new", path, data))

    def put_file(self, path: str, file: Path) -> None:
        self._call("put_file", path, file)

    def get(self, path: str) -> bytes | None:
        data: bytes | None = self._call("get", path)
        return data

    def get_range(self, path: str, start: int, end: int) -> bytes | None:
        data: bytes | None = self._call("get_range", path, start, end)
        return data

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self._step()
        yield from list(self._objects.list(prefix))
        self._step()

    def delete(self, path: str) -> None:
        self._call("delete", path)

    def _call(self, name: str, *arguments: object) -> Any:
        self._step()
        answer = getattr(self._objects, name)(*arguments)
        self._step()
        return answer

    def _step(self) -> None:
        if self.steps == self._at:
            raise self._problem
        self.steps += 1
