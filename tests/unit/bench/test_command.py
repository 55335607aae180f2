"""`rankd bench` as people run it, against a server that answers as the test says, and against the real one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from tests.acceptance.serving import Serving, serving
from typer.testing import CliRunner, Result

from rankd.bench import LoadReport
from rankd.cli.main import app

from .answering import answering

SHORT = ("--board", "arcade", "--rate", "200", "--duration", "200ms", "--connections", "4")


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env={"RANKD_URL": "", "RANKD_TOKEN": "", **environment}).invoke(app, ["bench", *arguments])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("bench") / "data") as running:
        with running.client(running.admin_key) as admin:
            definition = {"keep": "latest", "score_min": 5, "score_max": 50}
            assert admin.put("/v1/boards/arcade", json=definition).status_code == 200
        yield running


def test_players_join_and_everything_asked_is_answered(server: Serving) -> None:
    done = run(*SHORT, "--url", server.url, "--token", server.admin_key, "--players", "20", "--keys", "--json")

    assert done.exit_code == 0, done.output
    report = msgspec.json.decode(done.stdout, type=LoadReport)
    assert report.answered == report.sent > 0
    with server.client() as anybody:
        top = anybody.get("/v1/boards/arcade/top", params={"limit": 100}).json()
    assert top["total"] == 20
    assert all(5 <= entry["score"] <= 50 for entry in top["entries"])


def test_reads_of_a_public_board_need_no_credential(server: Serving) -> None:
    run(*SHORT, "--url", server.url, "--players", "20", RANKD_TOKEN=server.admin_key)
    done = run(*SHORT, "--url", server.url, "--players", "20", "--writes", "0", "--mix", "rank=1,top=1")

    assert done.exit_code == 0, done.output
    calls = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert calls == ["call", "rank", "top", "all"]


def test_a_table_is_for_people() -> None:
    with answering() as answers:
        done = run(*SHORT, "--no-join", "--token", "t", RANKD_URL=answers.url, FORCE_COLOR="1", COLUMNS="120")

    assert done.exit_code == 0, done.output
    assert "requests/s" in done.stdout
    assert "p99 ms" in done.stdout


def test_errors_are_shown_and_end_with_1() -> None:
    with answering(lambda _: b"HTTP/1.1 503 No\r\ncontent-length: 4\r\n\r\nbusy") as answers:
        done = run(*SHORT, "--no-join", "--token", "t", "--url", answers.url)

    assert done.exit_code == 1
    assert "503: busy" in done.stderr


def test_a_board_that_is_not_there_is_said_before_anything_is_sent(server: Serving) -> None:
    done = run("--board", "nowhere", "--url", server.url, "--token", server.admin_key)

    assert done.exit_code == 1
    assert "nowhere" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "--url"),
        (("--url", "http://127.0.0.1:9", "--duration", "soon"), 1, "duration"),
        (("--url", "http://127.0.0.1:9", "--mix", "submit=1"), 1, "mix"),
        (("--url", "http://127.0.0.1:9"), 1, "token"),
        (("--url", "http://127.0.0.1:9", "--no-join", "--writes", "0"), 3, "is the server running"),
    ],
)
def test_what_cannot_be_run_is_said(arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run("--board", "arcade", *arguments)

    assert done.exit_code == code
    assert message in done.stderr


def test_help_shows_an_example() -> None:
    assert "rankd bench --url http://127.0.0.1:8080" in run("--help").stdout
