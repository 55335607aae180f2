"""`rankd token`: API keys and signing keys of a data folder, even while a server uses it."""

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

from rankd.cli.exits import UsageError
from rankd.cli.options import ConfigFile, Data, Json, examples
from rankd.cli.output import answer, table
from rankd.cli.target import Target
from rankd.cli.texts import instant_text, utc_text
from rankd.clock import SystemClock
from rankd.config.loading import data_folder
from rankd.domain.duration import parse_duration
from rankd.domain.text import escaped
from rankd.errors import InvalidValue, NotFound
from rankd.node.installation import installation_of
from rankd.registry.credentials import Credential, Credentials, Scope, SigningKey
from rankd.registry.sqlite.credentials_file import FILE_NAME

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


class TokenList(msgspec.Struct, frozen=True):
    """What `rankd token list --json` prints."""

    tokens: list[ListedToken]
    signing_keys: list[SigningKey]


@contextmanager
def _credentials(data: Path | None, config: Path | None, *, creates: bool = False) -> Iterator[Credentials]:
    loaded = Target.folder_of(data, config).config()
    installation = installation_of(loaded)
    if not creates and not installation.is_shared and not (data_folder(loaded) / FILE_NAME).exists():
        raise InvalidValue(
            "--data", f"there are no keys in {data_folder(loaded)}; name another folder, or create a key: rankd token"
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
        typer.Option(metavar="NAME", help="Its name in the ledger; by default a random one.", show_default=False),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Such as 30d; by default never.", show_default=False)
    ] = None,
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Create an API key, list and revoke them; a running server learns of it within a second.

    A key with scores:write, players:write or boards:admin is a service's; any other acts for one --player. Its token is
    shown once.
    """
    if ctx.invoked_subcommand is not None:
        return
    if not scope and player is None:
        raise UsageError("say what the key may do: --scope scores:write for a service, or --player PLAYER")
    clock = SystemClock()
    expires_at = None if expires is None else clock.now() + parse_duration("--expires", expires, EXPIRES_MS_MIN)
    key_name = name or f"{'service' if player is None else 'player'}-{secrets.token_hex(NAME_RANDOM_BYTES)}"
    with _credentials(data, config, creates=True) as credentials:
        key, token = credentials.create(key_name, scope or (), player, expires_at)
    new = NewToken(token, key.id, key.name, _scopes(key), key.player, key.expires_at)
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
        listed = TokenList(
            [
                ListedToken(key.id, key.name, _scopes(key), key.player, key.created_at, key.expires_at)
                for key in credentials.list()
            ],
            list(credentials.list_signing_keys()),
        )
    now = SystemClock().now()
    answer(listed, as_json, lambda: _listed_tables(listed, now), lambda: _listed_lines(listed))


def _listed_tables(listed: TokenList, now: int) -> RenderableType:
    parts: list[RenderableType] = []
    if listed.tokens:
        whole = ("id", "made", "expires")
        keys = table("id", "name", "scopes", "player", "made", "expires", whole=whole, title=Text("API keys", "bold"))
        for token in listed.tokens:
            is_over = token.expires_at is not None and token.expires_at <= now
            expires = "never" if token.expires_at is None else instant_text(token.expires_at)[:10]
            keys.add_row(
                token.id,
                Text(escaped(token.name), "bold"),
                ", ".join(token.scopes),
                Text(escaped(token.player or "")),
                instant_text(token.created_at)[:10],
                Text(expires, "red" if is_over else ""),
            )
        parts.append(keys)
    if listed.signing_keys:
        signing = table("name", "made", title=Text("Signing keys", "bold"))
        for key in listed.signing_keys:
            signing.add_row(Text(escaped(key.name), "bold"), instant_text(key.created_at)[:10])
        parts.append(signing)
    return Group(*parts) if parts else Text("There are no keys.", "dim")


def _listed_lines(listed: TokenList) -> Iterable[tuple[object, ...]]:
    for token in listed.tokens:
        expires = None if token.expires_at is None else utc_text(token.expires_at)
        created = utc_text(token.created_at)
        yield ("token", token.id, token.name, ",".join(token.scopes), token.player, created, expires)
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
    """Revoke a key."""
    with _credentials(data, config) as credentials:
        is_revoked = credentials.revoke_signing_key(key) if signing else credentials.revoke(key)
    if not is_revoked:
        raise NotFound(f"there is no {'signing' if signing else 'API'} key {key!r:.80}; see rankd token list")
    answer(
        {"revoked": key},
        as_json,
        lambda: Text.assemble((escaped(key), "bold"), " is revoked"),
        lambda: [("revoked", key)],
    )


@app.command(epilog=examples("rankd token signing arcade-client", "rankd token signing arcade-client --json"))
def signing(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that boards use in `signing`.")],
    data: Data = None,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Create a key that signs submissions to a board; its secret is shown once."""
    with _credentials(data, config, creates=True) as credentials:
        secret = credentials.create_signing_key(name)
    answer(
        NewSigningKey(secret, name),
        as_json,
        lambda: Group(
            Text(secret, "bold"),
            Text(f"Keep it safe: it is shown this once. Boards with signing = {name!r} need it.", "dim"),
        ),
        lambda: [(secret,)],
    )
