"""Certificates of an authority that the test makes, and Redis that talks TLS only."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import redis
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.servers.redis import CLUSTER, MASTERS, RedisCluster, RedisServer

DAY = timedelta(days=1)


class Authority:
    """Signs certificates for 127.0.0.1; `certificate` is what clients trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        signed = self._begun(self._name, self._key).add_extension(constraints, critical=True)
        self.certificate = self._write(f"{name}.crt", _pem(signed.sign(self._key, hashes.SHA256())))

    def sign(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate and its key; they belong to whom the folder belongs to."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        signed = self._begun(subject, key).add_extension(address, critical=False).sign(self._key, hashes.SHA256())
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._write(f"{name}.crt", _pem(signed)), self._write(f"{name}.key", private)

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )

    def _write(self, name: str, data: bytes) -> Path:
        path, owner = self._folder / name, self._folder.stat()
        path.write_bytes(data)
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
        return path


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


class TlsRedisServer(RedisServer):
    """A Redis with no port that is not encrypted."""

    def __init__(self, folder: Path, authority: Authority, settings: tuple[str, ...] = (), password: str = "") -> None:
        self._authority = authority
        self._password = password or None
        certificate, key = authority.sign(f"redis-{folder.name}")
        files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(key))
        trust = ("--tls-ca-cert-file", str(authority.certificate), "--tls-auth-clients", "no")
        own = ("--requirepass", password, "--masterauth", password) if password else ()
        super().__init__(folder, (*files, *trust, *own, *settings))

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}?ssl_ca_certs={self._authority.certificate}"

    def client_of(self, port: int) -> Any:
        trust = str(self._authority.certificate)
        where: dict[str, Any] = {"host": "127.0.0.1", "port": port, "password": self._password}
        return redis.Redis(**where, protocol=2, socket_timeout=30, ssl=True, ssl_ca_certs=trust)

    def listening(self, port: int) -> list[str]:
        return ["--port", "0", "--tls-port", str(port)]


@contextmanager
def running_tls_redis(
    authority: Authority, settings: tuple[str, ...] = (), password: str = ""
) -> Iterator[TlsRedisServer]:
    with tempfile.TemporaryDirectory(prefix="rankd-redis-") as folder:
        server = TlsRedisServer(Path(folder), authority, settings, password)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@contextmanager
def running_tls_cluster(authority: Authority, password: str) -> Iterator[RedisCluster]:
    """Run a cluster whose servers also talk TLS to each other."""
    among = ("--tls-cluster", "yes", "--tls-replication", "yes")
    with ExitStack() as stack:
        servers = [
            stack.enter_context(running_tls_redis(authority, (*CLUSTER, *among), password)) for _ in range(2 * MASTERS)
        ]
        cluster = RedisCluster(servers)
        cluster.form()
        yield cluster
