"""`rankd token`: API keys and signing keys of a data folder, also while a server uses it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from rankd.cli.exits import Misused
from rankd.cli.options import ConfigFile, Data, Json, examples
from rankd.cli.output import answer, table
from rankd.cli.target import Target
from rankd.cli.texts import instant_text, utc_text
from rankd.clock import SystemClock
from rankd.config.loading import data_folder
from rankd.domain.duration import parse_duration
from rankd.domain.text import escaped
from rankd.errors import InvalidValue, NotFound
from rankd.installation import installation_of
from rankd.registry.credentials import Credential, Credentials, Scope, SigningKey
from rankd.registry.credentials_file import FILE_NAME

NAME_RANDOM_BYTES = 3
EXPIRES_MS_MIN = 1_000

app = typer.Typer(
    invoke_without_command=True,
    epilog=examples(
        "rankd token --scope scores:write --name game-server",
        "rankd token --player alice --expires 30d --json",
        "rankd token list",
    ),
)


class NewToken(msgspec.Struct, frozen=True):
    """What `rankd token --json` prints."""

    token: str
    id: str
    name: str
    scopes: list[str]
    player: str | None
    expires_at: int | None


class NewSigningKey(msgspec.Struct, frozen=True):
    """What `rankd token signing --json` prints."""

    secret: str
    name: str


class ListedToken(msgspec.Struct, frozen=True):
    """An API key without its secret part."""

    id: str
    name: str
    scopes: list[str]
    player: str | None
    created_at: int
    expires_at: int | None


class Listed(msgspec.Struct, frozen=True):
    """What `rankd token list --json` prints."""

    tokens: list[ListedToken]
    signing_keys: list[SigningKey]


@contextmanager
def _credentials(data: Path | None, config: Path | None, *, creates: bool = False) -> Iterator[Credentials]:
    loaded = Target.folder_of(data, config).config()
    installation = installation_of(loaded)
    if not creates and not installation.is_shared and not (data_folder(loaded) / FILE_NAME).exists():
        raise InvalidValue(
            "--data", f"there are no keys in {data_folder(loaded)}; name another folder, or make one: rankd token"
        )
    with installation.open_credentials() as credentials:
        if creates:
            installation.first_key(credentials)  # as the first `serve` does, whichever comes first
        yield credentials


def _complete_scope(incomplete: str) -> list[str]:
    return [scope.value for scope in Scope if scope.startswith(incomplete)]


@app.callback()
def create(
    *,
    ctx: typer.Context,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="SCOPE",
            help=f"What it may do: {', '.join(Scope)}; may be repeated.",
            show_default=False,
            autocompletion=_complete_scope,
        ),
    ] = None,
    player: Annotated[
        str | None, typer.Option(metavar="PLAYER", help="The player it acts for.", show_default=False)
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who it is in the ledger; by default a made-up one.", show_default=False),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Such as 30d; by default never.", show_default=False)
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Make an API key, list and revoke them; a running server knows of it within a second.

    A key with scores:write, players:write or boards:admin is a service's; any other acts for one --player. Its token is
    shown once.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not scope and player is None:
        raise Misused("say what the key may do: --scope scores:write for a service, or --player PLAYER")
    clock = SystemClock()
    expires_at = None if expires is None else clock.now() + parse_duration("--expires", expires, EXPIRES_MS_MIN)
    named = name or f"{'service' if player is None else 'player'}-{secrets.token_hex(NAME_RANDOM_BYTES)}"
    with _credentials(data, config, creates=True) as credentials:
        made, token = credentials.create(named, scope or (), player, expires_at)
    new = NewToken(token, made.id, made.name, _scopes(made), made.player, made.expires_at)
    answer(new, as_json, lambda: _new_text(new), lambda: [(token,)])


def _scopes(credential: Credential) -> list[str]:
    return sorted(scope.value for scope in credential.scopes)


def _new_text(new: NewToken) -> RenderableType:
    who = ", ".join(new.scopes) if new.player is None else f"for {escaped(new.player)}"
    until = "" if new.expires_at is None else f", until {instant_text(new.expires_at)[:19]} (UTC)"
    return Group(
        Text(new.token, "bold"),
        Text(f"{escaped(new.name)}, {who}{until}. Keep it safe: it is shown this once. Its id is {new.id}.", "dim"),
    )


@app.command("list", epilog=examples("rankd token list", "rankd token list --json"))
def list_tokens(*, data: Data = None, config: ConfigFile = None, as_json: Json = False) -> None:
    """List API keys and signing keys, without their secrets."""
    with _credentials(data, config) as credentials:
        listed = Listed(
            [
                ListedToken(one.id, one.name, _scopes(one), one.player, one.created_at, one.expires_at)
                for one in credentials.list()
            ],
            list(credentials.list_signing_keys()),
        )
    now = SystemClock().now()
    answer(listed, as_json, lambda: _listed_tables(listed, now), lambda: _listed_lines(listed))


def _listed_tables(listed: Listed, now: int) -> RenderableType:
    parts: list[RenderableType] = []
    if listed.tokens:
        whole = ("id", "made", "expires")
        keys = table("id", "name", "scopes", "player", "made", "expires", whole=whole, title=Text("API keys", "bold"))
        for one in listed.tokens:
            is_over = one.expires_at is not None and one.expires_at <= now
            keys.add_row(
                one.id,
                Text(escaped(one.name), "bold"),
                ", ".join(one.scopes),
                Text(escaped(one.player or "")),
                instant_text(one.created_at)[:10],
                Text(
                    "never" if one.expires_at is None else instant_text(one.expires_at)[:10], "red" if is_over else ""
                ),
            )
        parts.append(keys)
    if listed.signing_keys:
        signing = table("name", "made", title=Text("Signing keys", "bold"))
        for key in listed.signing_keys:
            signing.add_row(Text(escaped(key.name), "bold"), instant_text(key.created_at)[:10])
        parts.append(signing)
    return Group(*parts) if parts else Text("There are no keys.", "dim")


def _listed_lines(listed: Listed) -> Iterable[tuple[object, ...]]:
    for one in listed.tokens:
        expires = None if one.expires_at is None else utc_text(one.expires_at)
        yield ("token", one.id, one.name, ",".join(one.scopes), one.player, utc_text(one.created_at), expires)
    for key in listed.signing_keys:
        yield ("signing", None, key.name, None, None, utc_text(key.created_at), None)


@app.command(epilog=examples("rankd token revoke 5f0c6a2b9d1e4387", "rankd token revoke --signing arcade-client"))
def revoke(
    *,
    key: Annotated[str, typer.Argument(metavar="ID", help="The id of an API key; the name of a signing key.")],
    signing: Annotated[bool, typer.Option("--signing", help="It is a signing key.")] = False,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Let a key hold no longer."""
    with _credentials(data, config) as credentials:
        is_revoked = credentials.revoke_signing_key(key) if signing else credentials.revoke(key)
    if not is_revoked:
        raise NotFound(f"no {'signing' if signing else 'API'} key {key!r:.80} is there; see rankd token list")
    answer(
        {"revoked": key},
        as_json,
        lambda: Text.assemble((escaped(key), "bold"), " holds no longer"),
        lambda: [("revoked", key)],
    )


@app.command(epilog=examples("rankd token signing arcade-client", "rankd token signing arcade-client --json"))
def signing(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What boards name in `signing`.")],
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Make a key that submissions to a board are signed with; its secret is shown once."""
    with _credentials(data, config, creates=True) as credentials:
        secret = credentials.create_signing_key(name)
    answer(
        NewSigningKey(secret, name),
        as_json,
        lambda: Group(
            Text(secret, "bold"),
            Text(f"Keep it safe: it is shown this once. Boards with signing = {name!r} ask for it.", "dim"),
        ),
        lambda: [(secret,)],
    )
