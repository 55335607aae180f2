"""What must not stand in any file."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import pkgutil
import re
import runpy
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import rankd

from .repository import NATIVE, PYTHON, ROOT, documents, files, files_ending, shown

TEXT = (*PYTHON, *NATIVE, ".md", ".toml", ".txt", ".json", ".svg", ".cmake", "")
# Written in two parts, so that this file does not break its own rules.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
SLEEP = re.compile(r"\bsle" r"ep(?:_for|_until)?\(")
BLANKET = re.compile(r"#\s*(type:\s*igno" r"re(?!\[)|no" r"qa(?!: ?[A-Z]+\d))")
MACHINE = re.compile(r"(?<![\w.])/(?:ro" r"ot|wo" r"rk|t" r"mp|ho" r"me)(?:/|\b)")
REGISTRY = re.compile(r"py" r"pi\.org|python" r"hosted\.org|npm" r"js\.(?:org|com)|crates\." r"io")


def found(pattern: re.Pattern[str], paths: list[Path]) -> Iterator[str]:
    for path in paths:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if pattern.search(line):
                yield f"{shown(path)}:{number}: {line.strip()}"


def texts() -> list[Path]:
    return [path for path in files() if path.suffix in TEXT]


def test_nothing_is_left_for_later() -> None:
    assert not list(found(UNFINISHED, texts()))


def test_no_placeholder_is_left_in_a_document() -> None:
    assert not list(found(re.compile(r"\{\{"), documents())), "fill them with what was measured"


def test_tests_wait_for_conditions_not_for_time() -> None:
    paths = [*files_ending(*PYTHON, under="tests"), *files_ending(*NATIVE, under="engine/tests")]

    assert not list(found(SLEEP, paths)), "wait for a condition with a deadline"


def test_a_checker_is_silenced_by_rule_only() -> None:
    assert not list(found(BLANKET, files_ending(*PYTHON))), "name the rule, such as type: ignore[arg-type]"


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    assert not list(found(MACHINE, texts()))


def test_no_file_names_a_package_registry() -> None:
    assert not list(found(REGISTRY, texts())), "where packages come from is set up outside of the project"


def test_a_public_type_name_means_one_thing() -> None:
    """Classes, aliases and type variables: a name may be defined again only by the same words."""
    meanings: dict[str, dict[str, str]] = {}
    for path in files_ending(".py", under="src"):
        for node in ast.parse(path.read_text()).body:
            for name, meaning in type_names(node, shown(path)):
                meanings.setdefault(name, {})[shown(path)] = meaning
    double = {name: sorted(by_path) for name, by_path in meanings.items() if len(set(by_path.values())) > 1}

    assert double == {}


def type_names(node: ast.stmt, path: str) -> Iterator[tuple[str, str]]:
    """Yield the public types that a statement defines, each with its meaning: a class is like no other."""
    if isinstance(node, ast.ClassDef):
        names, meaning = [node.name], path
    elif isinstance(node, ast.Assign):
        names, meaning = [name.id for name in node.targets if isinstance(name, ast.Name)], ast.unparse(node.value)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        names, meaning = [node.target.id], ast.unparse(node.value)
    else:
        return
    for name in names:
        if name[0].isupper() and not name.isupper():
            yield name, meaning


# What a type must not be called, and what the field calls it; `Parts` and the like would say even less.
OTHER_WORDS = {
    "Arrivals": "PositionWaiter",
    "Asking": "AnsweringApplier, RedisQuery",
    "Beat": "HeartbeatRecord",
    "Done": "CallResult",
    "Found": "PlayerList, Result",
    "Keeping": "StandingsSync",
    "KnownBoard": "StoredBoard",
    "KnownBoards": "MirrorState",
    "Lane": "ReadBatcher, PipelinedConnection, BatchWorker",
    "Listed": "TokenList",
    "Living": "CredentialSnapshot",
    "Look": "ReadSession, RankSource",
    "Looking": "ReadSession, RankSource",
    "Meant": "InstanceRef",
    "Missed": "Backfill",
    "Notes": "PendingStandings",
    "Packed": "PackedArray",
    "Parts": "Backend",
    "Patience": "BodyTimeouts",
    "Relayed": "RelayedResponse",
    "Running": "Backend, TotalsSoFar",
    "Seen": "ReadResult",
    "Spent": "LimitSpending",
    "Stretch": "EventRun, ScoreRange",
    "Taken": "DeadLetterCounts",
    "Tell": "OnDone",
    "Told": "what it records",
    "Together": "Coalescer",
    "Touched": "DirtyInstance",
    "Waiting": "AcceptedScore",
    "Waits": "ReaderWaits",
    "Way": "one path",
    "Written": "WriteReply",
}
# What no name of a function, test, argument or variable has among its words.
OTHER_PARTS = {
    "breathe": "yield_to_readers",
    "elsewhere": "where: another process, another host",
    "lane": "batcher, connection, worker",
    "living": "in force, open",
    "meant": "expected, resolved",
    "patience": "timeout",
    "seat": "slot",
    "spell": "OffsetPeriod",
    "told": "refused, answered, learns, shows",
    "untold": "what is missing",
}
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def identifiers_in(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the names that a file gives, each with whether it is a type's."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, False
        elif isinstance(node, ast.arg):
            yield node.arg, False
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.id.lstrip("_")[:1].isupper() and not node.id.isupper()


def better_word(name: str, is_type: bool) -> str | None:
    if is_type and name.lstrip("_") in OTHER_WORDS:
        return OTHER_WORDS[name.lstrip("_")]
    words = [word.lower() for word in WORDS.findall(name)]
    return next((OTHER_PARTS[word] for word in words if word in OTHER_PARTS), None)


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_names_are_words_of_the_field(folder: str) -> None:
    names = {
        f"{shown(path)}: {name}": word
        for path in files_ending(".py", under=folder)
        for name, is_type in identifiers_in(path)
        if (word := better_word(name, is_type)) is not None
    }

    assert names == {}, "an engineer of this field would search for the word on the right"


def test_names_of_the_engine_are_words_of_the_field() -> None:
    named = re.compile(r"\b(?:class|struct|enum class) (\w+)")
    names = {
        f"{shown(path)}: {name}": OTHER_WORDS[name]
        for path in files_ending(*NATIVE, under="engine")
        for name in named.findall(path.read_text())
        if name in OTHER_WORDS
    }

    assert names == {}


# Words that stand for a noun and are none, with which a variable says nothing of what it holds.
NOT_NOUNS = frozenset({"found", "one", "ones", "said", "told"})


def variables_in(path: Path) -> Iterator[str]:
    """Yield the name of every variable and argument, wherever it is bound."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest is not None:
            yield node.rest


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_a_variable_has_a_noun_for_a_name(folder: str) -> None:
    named = {shown(path): NOT_NOUNS & {*variables_in(path)} for path in files_ending(".py", under=folder)}

    assert {path: names for path, names in named.items() if names} == {}, "what does it hold?"


def modules() -> list[str]:
    named = [module.name for module in pkgutil.walk_packages(rankd.__path__, "rankd.")]
    return ["rankd", *(name for name in named if not is_native(name))]


def is_native(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and (spec.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def test_every_module_is_found() -> None:
    assert len(modules()) == len(files_ending(".py", under="src"))


@pytest.mark.parametrize("name", modules())
def test_examples_in_docstrings_are_true(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))

    assert failed == 0


def test_the_first_board_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The quick start shows the example's output to the letter."""
    runpy.run_path(str(ROOT / "examples" / "first_board.py"), run_name="__main__")

    assert capsys.readouterr().out.strip() in (ROOT / "docs" / "quick-start.md").read_text()
