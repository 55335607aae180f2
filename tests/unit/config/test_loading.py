"""What is in force: defaults, then the file, then the environment, then the command line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rankd.config.loading import KEYS, VARIABLES, data_folder, load_config, open_settings
from rankd.config.model import Config
from rankd.errors import InvalidValue
from rankd.settings import Settings, read_settings


@pytest.fixture(autouse=True)
def in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a rankd.toml."""
    monkeypatch.chdir(tmp_path)


def written(text: str, name: str = "rankd.toml") -> Path:
    path = Path(name)
    path.write_text(text)
    return path


def refusal(text: str, **environment: str) -> str:
    with pytest.raises(InvalidValue) as refused:
        load_config(written(text), environment)
    return str(refused.value)


def test_without_a_file_everything_has_its_default() -> None:
    assert load_config(None, {}) == Config()


def test_the_file_in_the_folder_is_read_without_being_named() -> None:
    written("[server]\nport = 9000\n")

    assert load_config(None, {}).server.port == 9000


def test_a_named_file_is_read_in_its_place() -> None:
    written("[server]\nport = 9000\n")
    written("[server]\nport = 9001\n", "other.toml")

    assert load_config("other.toml", {}).server.port == 9001


def test_a_named_file_must_be_there() -> None:
    with pytest.raises(InvalidValue, match=r"^missing.toml: cannot be read: No such file or directory"):
        load_config("missing.toml", {})


def test_the_environment_wins_over_the_file_and_the_command_line_over_both() -> None:
    path = written('[server]\nport = 9000\nhost = "::"\nlog_level = "error"\n')
    environment = {"RANKD_SERVER_PORT": "9001", "RANKD_SERVER_HOST": "10.0.0.5"}

    server = load_config(path, environment, {"server.port": 9002}).server

    assert (server.port, server.host, server.log_level) == (9002, "10.0.0.5", "error")


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("RANKD_SERVER_PORT", "0", "port", 0),
        ("RANKD_SERVER_STOP_WAIT_MS", "20_000", "stop_wait_ms", 20_000),
        ("RANKD_SERVER_PUBLIC_READ", "false", "public_read", False),
        ("RANKD_SERVER_CORS_ORIGINS", "https://a.example, http://localhost:3000", "cors_origins", None),
        ("RANKD_SERVER_TRUSTED_PROXIES", "", "trusted_proxies", ()),
        ("RANKD_SERVER_LOG_REQUESTS", "all", "log_requests", "all"),
    ],
)
def test_a_variable_is_read_as_what_its_key_is(name: str, text: str, key: str, value: object) -> None:
    expected = ("https://a.example", "http://localhost:3000") if value is None else value

    assert getattr(load_config(None, {name: text}).server, key) == expected


def test_every_key_has_a_variable() -> None:
    assert set(VARIABLES.values()) == set(KEYS)
    assert VARIABLES["RANKD_LIMITS_BATCH_EVENTS_MAX"] == "limits.batch_events_max"


def test_variables_of_other_programs_and_of_the_command_line_are_left_alone() -> None:
    environment = {"PATH": "x", "RANKD_TOKEN": "t", "RANKD_URL": "u", "RANKD_DEBUG": "1", "RANKD_CONFIG": "c"}

    assert load_config(None, environment) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\n\nprot = 1", "rankd.toml, line 3: server.prot: is not known; did you mean port?"),
        ("[sever]\nport = 1", "rankd.toml, line 1: sever: is not a section; did you mean server?"),
        ("server = 1", "rankd.toml: server: must be a section, [server]; got int"),
        ('[server]\nport = "8080"', "rankd.toml, line 2: server.port: must be an integer; got text"),
        ("[server]\nport = true", "rankd.toml, line 2: server.port: must be an integer; got a boolean"),
        ("server.port = 1.5", "rankd.toml: server.port: must be an integer; got float"),
        ("[server]\npublic_read = 1", "rankd.toml, line 2: server.public_read: must be true or false; got int"),
        ("[server]\nhost = 1", "rankd.toml, line 2: server.host: must be text; got int"),
        (
            '[server]\nlog_level = "loud"',
            "rankd.toml, line 2: server.log_level: must be one of debug, info, warning, error; got 'loud'",
        ),
        ("[server]\nlog_level = 3", "rankd.toml, line 2: server.log_level: must be one of"),
        ('[server]\ncors_origins = "*"', "rankd.toml, line 2: server.cors_origins: must be a list of texts; got text"),
        (
            '[server]\ncors_origins = ["*", 1]',
            "rankd.toml, line 2: server.cors_origins: must be a list of texts; got a list with int",
        ),
        ("[server\nport = 1", "rankd.toml: is not TOML: expected ']'"),
        ("[limits]\nmax_body_bytes = 1", "line 2: limits.max_body_bytes: is not known; did you mean body_bytes_max?"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_the_way_out(text: str, message: str) -> None:
    assert message in refusal(text)


def test_a_syntax_error_says_its_line() -> None:
    assert "(at line 2, column" in refusal("[server]\nport 1")


def test_a_file_that_is_no_text_is_refused() -> None:
    Path("rankd.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(InvalidValue, match="is not UTF-8"):
        load_config(None, {})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("RANKD_SERVER_PROT", "1", "is not a setting; did you mean RANKD_SERVER_PORT?"),
        ("RANKD_TOKN", "1", "is not a setting; did you mean RANKD_TOKEN?"),
        ("RANKD_BOARDS_ARCADE_KEEP", "sum", "is not a setting: define boards in rankd.toml or by"),
        ("RANKD_SERVER_PORT", "80.0", "must be an integer; got '80.0'"),
        ("RANKD_SERVER_PORT", "٨٠", "must be an integer; got"),
        ("RANKD_SERVER_PORT", "", "must be an integer; got ''"),
        ("RANKD_SERVER_PUBLIC_READ", "yes", "must be true or false; got 'yes'"),
        ("RANKD_SERVER_LOG_FORMAT", "xml", "must be one of auto, json, text; got 'xml'"),
        ("RANKD_SERVER_PORT", "65536", "must be from 0 to 65535; got 65536"),
    ],
)
def test_a_mistaken_variable_is_named(name: str, text: str, message: str) -> None:
    assert refusal("", **{name: text}).startswith(f"{name}: {message}")


def test_an_option_of_the_command_line_is_named_as_it_is_written() -> None:
    with pytest.raises(InvalidValue, match=r"^--port: must be from 0 to 65535; got 70000"):
        load_config(None, {}, {"server.port": 70_000})


def test_boards_are_read_and_checked() -> None:
    boards = load_config(written('[boards.arcade]\nkeep = "sum"\n[boards.xp]\n'), {}).boards

    assert boards == {"arcade": {"keep": "sum"}, "xp": {}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[boards.arcade]\ntitle = "A"\nkeep = "bst"', "rankd.toml, line 3: boards.arcade.keep: must be one of best"),
        ("[boards.arcade]\nkep = 1", "rankd.toml, line 2: boards.arcade.kep: is not known here; did you mean keep?"),
        ('[boards.arcade]\nkeep = {daly = "sum"}', "rankd.toml, line 2: boards.arcade.keep.daly: is not known here"),
        ('[boards.arcade]\nscopes = ["A"]', "rankd.toml, line 2: boards.arcade.scopes[0]: must be 1 to 64 of"),
        ("[boards.Arcade]", "rankd.toml, line 1: boards.Arcade: must be 1 to 64 of"),
        ("[boards]\narcade = 1", "boards.arcade: must be an object"),
        ("boards = 1", "rankd.toml: boards: must hold boards such as [boards.arcade]; got int"),
    ],
)
def test_a_mistake_in_a_board_is_named_with_its_line(text: str, message: str) -> None:
    assert message in refusal(text)


def test_the_library_gets_its_settings() -> None:
    config = load_config(None, {"RANKD_LEDGER_COMMIT_WAIT_MS": "2", "RANKD_RANKS_SNAPSHOTS_KEPT": "5"})
    settings = read_settings(open_settings(config))

    assert (settings.commit_wait_ms, settings.snapshots_kept) == (2, 5)


def test_a_default_is_the_same_in_the_file_and_in_the_library() -> None:
    library = {field.name: field.default for field in msgspec.structs.fields(Settings)}

    assert open_settings(Config()) == {
        name: value for name, value in library.items() if name not in ("request_events_max", "vfs")
    }


@pytest.mark.parametrize(
    ("url", "folder"),
    [("sqlite:rankd-data", Path("rankd-data")), ("sqlite:/var/lib/rankd", Path("/var/lib/rankd"))],
)
def test_the_data_folder_is_what_the_ledger_names(url: str, folder: Path) -> None:
    assert data_folder(load_config(None, {"RANKD_LEDGER_URL": url})) == folder


def test_the_folder_of_a_user_is_found() -> None:
    assert data_folder(load_config(None, {"RANKD_LEDGER_URL": "sqlite:~/scores"})) == Path("~/scores").expanduser()
