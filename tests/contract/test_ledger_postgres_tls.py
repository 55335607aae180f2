"""The way to PostgreSQL is encrypted, and the server proved, when the URL says so."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.contract.ledger_drafts import draft, events_in
from tests.contract.postgres_ledgers import opened
from tests.servers.fixtures_postgres import needs_postgres
from tests.servers.postgres import UNSYNCED, PostgresServer

from rankd.errors import LedgerUnavailable
from rankd.ledger.postgres import migrate


def write_certificate(folder: Path, name: str) -> Path:
    """Write a key and a certificate that is its own authority; both belong to whom the folder belongs to."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    owner = folder.stat()
    for path, data in (
        (folder / f"{name}.key", private),
        (folder / f"{name}.crt", made.public_bytes(serialization.Encoding.PEM)),
    ):
        path.write_bytes(data)
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
    return folder / f"{name}.crt"


@pytest.fixture
def tls_server() -> Iterator[tuple[PostgresServer, Path]]:
    """A server that answers over TLS, with a certificate that is in the folder."""
    needs_postgres()
    with tempfile.TemporaryDirectory(prefix="rankd-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        files = (f"ssl_cert_file={folder}/server.crt", f"ssl_key_file={folder}/server.key")
        server = PostgresServer(folder, (*UNSYNCED, "ssl=on", *files))
        write_certificate(folder, "server")
        try:
            server.start()
            yield server, folder
        finally:
            server.kill()


def test_tls_is_asked_for_and_the_server_proved_by_the_url(tls_server: tuple[PostgresServer, Path]) -> None:
    server, folder = tls_server
    trusted = f"{server.url()}?sslmode=verify-full&sslrootcert={folder}/server.crt"

    migrate(trusted)
    with opened(trusted) as ledger:
        ledger.append(draft(ledger, ("alice", 1)))
        assert events_in(ledger) == [("alice", 1)]
        with ledger.connections.using() as connection:
            asked = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
            assert connection.execute(asked).fetchone() == (True,)


def test_a_server_that_cannot_prove_itself_is_refused(tls_server: tuple[PostgresServer, Path]) -> None:
    server, folder = tls_server
    another = write_certificate(folder, "another")

    with pytest.raises(LedgerUnavailable, match="certificate"):
        migrate(f"{server.url()}?sslmode=verify-full&sslrootcert={another}")
