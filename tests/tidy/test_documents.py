"""What documents say is there, is there: paths, commands, names, versions; and their examples run."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from pathlib import Path

import msgspec
import pytest

from rankd.domain.definition import NAMES
from rankd.settings import Settings

from .repository import ROOT, blocks, documents, files_ending, links, shown, spans

PATH = re.compile(r"\.?[\w-]+(?:/[\w.*-]+)*(?:/|\.(?:py|pyi|md|hpp|cpp|toml|txt|svg|json))")
MAKE = re.compile(r"\bmake ([a-z][a-z-]*)")
ANSWERED = re.compile(r"^( *)(\S.*?) +# (.+)$")
ADR_HEADINGS = ["Status", "Context", "Decision", "Rejected", "Consequences"]
ADR_LINES_MAX = 62
LINES_MAX = {"README.md": 150, "docs/architecture.md": 200}
FIGURES_MAX = 12
STEP = re.compile(r"`([\w./]+\.(?:py|hpp|cpp))`[^`\n]*((?:`[\w.:]+`(?:, |,? and )?)+)")


@pytest.mark.parametrize("document", documents(), ids=shown)
def test_every_path_exists(document: Path) -> None:
    places = (document.parent, ROOT, ROOT / "src" / "rankd")
    for path in [span for span in spans(document) if PATH.fullmatch(span)]:
        assert any(any(place.glob(path)) for place in places), path
    for link in [link for link in links(document) if "://" not in link]:
        assert (document.parent / link).exists(), link


@pytest.mark.parametrize("name", LINES_MAX)
def test_what_is_read_first_is_short(name: str) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= LINES_MAX[name]


def test_the_readme_has_few_figures() -> None:
    _, _, measured = (ROOT / "README.md").read_text().partition("\n## Measured\n")
    header, _, *rows = re.findall(r"^\|.*$", measured, re.MULTILINE)

    assert "rankd" in header
    assert 0 < len(rows) <= FIGURES_MAX, "docs/measured.md has the others"


@pytest.mark.parametrize("document", documents(), ids=shown)
def test_every_make_target_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    mentioned = {target for text in [*spans(document), *blocks(document)] for target in MAKE.findall(text)}

    assert mentioned <= targets


def test_make_help_names_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()

    assert set(phony) - {"help", "setup"} == set(re.findall(r'@echo "make ([a-z-]+)', makefile))


def with_answers_checked(example: str) -> tuple[str, int]:
    """Return an example that fails where an answer is not the one written behind it, and how many it checks."""
    lines, answers = [], 0
    for line in example.splitlines():
        written = ANSWERED.match(line)
        if written and is_expression(written[2]):
            lines.append(f"{written[1]}assert repr(({written[2]})) == {written[3]!r}")
            answers += 1
        else:
            lines.append(line)
    return "\n".join(lines), answers


def is_expression(code: str) -> bool:
    try:
        ast.parse(code, mode="eval")
    except SyntaxError:
        return False
    return True


def test_the_examples_of_the_readme_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They run as they stand, and an answer written behind an expression is what it gives."""
    monkeypatch.chdir(tmp_path)
    examples = blocks(ROOT / "README.md", "python")
    assert examples
    for example in examples:
        checked, answers = with_answers_checked(example)
        assert answers
        script = tmp_path / "example.py"
        script.write_text(checked)
        runpy.run_path(str(script))


def defined(path: Path) -> set[str]:
    """Return the names a file defines, methods behind their class."""
    if path.suffix != ".py":
        return set(re.findall(r"[\w:]+(?=\()|(?<=class )\w+|(?<=struct )\w+", path.read_text()))
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            names |= {f"{node.name}.{item.name}" for item in methods}
    return names


def test_the_score_path_names_what_exists() -> None:
    steps = STEP.findall((ROOT / "docs" / "score-path.md").read_text())
    assert len(steps) > 10
    for path, names in steps:
        for name in re.findall(r"`([\w.:]+)`", names):
            assert name in defined(ROOT / path), f"{path} has no {name}"


@pytest.mark.parametrize("record", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=shown)
def test_a_decision_record_says_what_was_rejected_and_why(record: Path) -> None:
    headings = re.findall(r"^## (.+)$", record.read_text(), re.MULTILINE)

    assert headings == ADR_HEADINGS
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+", record.stem)


@pytest.mark.parametrize("record", sorted((ROOT / "docs" / "adr").glob("*.md")), ids=shown)
def test_a_decision_record_is_a_page(record: Path) -> None:
    assert len(record.read_text().splitlines()) <= ADR_LINES_MAX, "figures belong into docs/measured.md"


def test_decision_records_are_numbered_without_a_gap_and_listed() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    listed = (ROOT / "docs" / "decisions.md").read_text()

    assert [int(record.stem[:4]) for record in records] == list(range(1, len(records) + 1))
    assert [record.name for record in records if f"adr/{record.name}" not in listed] == []


def test_the_changelog_speaks_of_this_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_word_of_the_glossary_is_used() -> None:
    words = re.findall(r"^\| \*\*([^*]+)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    others = [path for path in files_ending(".py", ".hpp", ".cpp", ".md") if path.name != "glossary.md"]
    used = "\n".join(path.read_text().lower() for path in others)
    used = used.replace("_", " ").replace("-", " ")

    assert words == sorted(set(words), key=str.lower)
    assert len(words) > 40
    for word in words:
        assert re.search(rf"\b{word.replace('-', ' ').lower()}", used), f"nobody says {word}"


def test_every_option_of_a_board_is_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()

    assert [name for name in NAMES if f"`{name}`" not in glossary] == []


def test_every_setting_is_explained_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE)
    settings = {field.name: field.default for field in msgspec.structs.fields(Settings)}

    assert [name for name, _ in rows] == list(settings)
    assert [name for name, default in rows if default.replace(",", "") != (f"{settings[name]}" or "none")] == []


def test_every_table_and_column_of_the_ledger_is_explained() -> None:
    explained = (ROOT / "docs" / "ledger.md").read_text()
    scripts = [script.read_text() for script in files_ending(".sql", under="src/rankd/ledger/sqlite/schema")]
    assert scripts
    dropped = {table for script in scripts for table in re.findall(r"DROP TABLE (\w+);", script)}
    for script in scripts:
        for table, columns in re.findall(r"CREATE TABLE (\w+) \(\n(.*?)\n\)", script, re.DOTALL):
            if table in dropped:
                continue
            section = re.search(rf"^### {table}\n(.*?)(?=^##|\Z)", explained, re.MULTILINE | re.DOTALL)
            assert section, f"docs/ledger.md has no section for {table}"
            names = re.findall(r"^  ([a-z]\w*) ", columns, re.MULTILINE)
            assert [name for name in names if f"| `{name}` |" not in section[1]] == [], table


GAP = re.compile(r"…|\d[\d.:]*")  # in a document, for what differs from line to line
FORMATTED = re.compile(r"%[ds]|%\.1f|\{[^{}]*\}")  # the same in the code
SPLIT_TEXT = re.compile(r'"\s*f?"')  # one text on several lines


def test_every_log_line_of_the_runbook_is_one_of_the_code() -> None:
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    code = "\n".join(path.read_text() for path in files_ending(".py", ".lua", under="src"))
    logged = FORMATTED.sub("…", SPLIT_TEXT.sub("", code))
    lines = [
        line
        for table in re.findall(r"^\| line.*\n(?:\|.*\n)+", runbook, re.MULTILINE)
        for row in table.splitlines()[2:]
        for line in re.findall(r"`([^`]+)`", row.split(" | ")[0])
    ]
    parts = {part.strip(" :;,") for line in lines for part in GAP.split(line)}

    assert len(lines) > 20
    assert sorted(part for part in parts if not is_logged(part, logged)) == []


def is_logged(part: str, logged: str) -> bool:
    """Return whether the code has a text, as a whole or as one that it fills with another."""
    cuts = [cut.start() for cut in re.finditer(" ", part)]
    return part in logged or any(f"{part[:cut]} …" in logged and f'"{part[cut + 1 :]}' in logged for cut in cuts)
