"""Addresses of Kafka: brokers, credentials and TLS, from a URL and `[kafka]`.

kafka://rankd:secret@broker-1:9093,broker-2:9093?tls=true
"""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote

from rankd.config.model import KafkaConfig
from rankd.errors import InvalidValue

SCHEME = "kafka"
PORT = 9092
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
_PARAMETERS = ("tls", "ca", "mechanism")


def client_settings(url: str, kafka: KafkaConfig, where: str = "url") -> dict[str, str]:
    """Return what librdkafka's clients need to connect; `where` names the URL in a refusal. No error holds a secret.

    >>> client_settings("kafka://127.0.0.1", KafkaConfig())["bootstrap.servers"]
    '127.0.0.1:9092'
    """
    scheme, separator, rest = url.partition("://")
    if scheme != SCHEME or not separator:
        raise InvalidValue(where, "must be kafka:// and brokers, such as kafka://broker-1:9092,broker-2:9092")
    location, _, query = rest.partition("?")
    credentials, at, brokers = location.rpartition("@")
    settings = {"bootstrap.servers": ",".join(_broker(where, broker) for broker in brokers.rstrip("/").split(","))}
    parameters = _parameters(where, query)
    user, _, password = credentials.partition(":")
    username = unquote(user) if at else kafka.username
    is_tls = {"true": True, "false": False}.get(parameters.get("tls", str(kafka.tls).lower()))
    if is_tls is None:
        raise InvalidValue(where, "tls: must be true or false")
    if username:
        mechanism = parameters.get("mechanism", kafka.mechanism)
        if mechanism not in MECHANISMS:
            raise InvalidValue(where, f"mechanism: must be among {', '.join(MECHANISMS)}")
        settings["sasl.mechanism"] = mechanism
        settings["sasl.username"] = username
        settings["sasl.password"] = unquote(password) if at else kafka.password
    settings["security.protocol"] = ("SASL_" if username else "") + ("SSL" if is_tls else "PLAINTEXT")
    files = {"ssl.ca.location": parameters.get("ca", kafka.ca), "ssl.certificate.location": kafka.cert}
    files["ssl.key.location"] = kafka.key
    return {**settings, **{name: file for name, file in files.items() if file and is_tls}}


def _broker(where: str, broker: str) -> str:
    host, _, port = broker.rpartition(":") if ":" in broker and not broker.endswith("]") else (broker, "", str(PORT))
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536 or "/" in host:
        raise InvalidValue(where, "must name brokers as host:port, separated by commas")
    return f"{host}:{port}"


def _parameters(where: str, query: str) -> dict[str, str]:
    parameters = dict(parse_qsl(query, keep_blank_values=True))
    unknown = [name for name in parameters if name not in _PARAMETERS]
    if unknown:
        raise InvalidValue(where, f"?{unknown[0]:.40} is unknown; a URL may have {', '.join(_PARAMETERS)}")
    return parameters
