"""What deploy/ says is true of this version: variables and commands exist, versions are named, secrets are not."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml  # type: ignore[import-untyped]
from typer.testing import CliRunner

from rankd.cli.main import app
from rankd.config.loading import VARIABLES, load_config

from .repository import ROOT, files_ending, shown

Document = dict[str, Any]

DEPLOY = ROOT / "deploy"
# How many there must be of each role: in compose.yaml every server ranks, in the other one two projectors do.
COMPOSES = {
    "compose.yaml": {"migrate": 1, "serve": 2},
    "compose.redis.yaml": {"migrate": 1, "project": 2, "serve": 2},
    "compose.kafka.yaml": {"serve": 1},
    "compose.kafka-ledger.yaml": {"migrate": 1, "serve": 2},
}
KUBERNETES = DEPLOY / "kubernetes"
BASE = KUBERNETES / "base"
WORKLOADS_OF = {
    "nodes": {"migrate": "Job", "serve": "StatefulSet"},
    "redis": {"migrate": "Job", "project": "StatefulSet", "serve": "Deployment"},
    "kafka": {"migrate": "Job", "serve": "StatefulSet", "consume": "Deployment"},
    "kafka-ledger": {"migrate": "Job", "serve": "StatefulSet"},
}
BUILT_ON = {"nodes": "base", "redis": "base", "kafka": "nodes", "kafka-ledger": "nodes"}
composes = pytest.mark.parametrize("name", COMPOSES)
overlays = pytest.mark.parametrize("overlay", WORKLOADS_OF)
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?[\w.-]*")
ANY_REPLACED = re.compile(r"\$\{(\w+)(:?[-?][^}]*)?\}")
SECRET_NAME = re.compile(r"PASSWORD|SECRET|_URL$|AUTH$")
PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:([^/@\s]+)@")
PROBES = {
    "serve": {"startupProbe", "readinessProbe", "livenessProbe"},
    "project": {"readinessProbe", "livenessProbe"},  # it may read the ledger for as long as it takes
}
FILLED_IN = 48 * "f"  # as long as `openssl rand -hex 24` makes it
WORKLOADS = {"Deployment", "StatefulSet", "Job"}


def commands() -> set[str]:
    group = typer.main.get_command(app)
    return set(getattr(group, "commands", {}))


def documents_in(path: Path) -> list[Document]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


def compose(name: str) -> Document:
    (document,) = documents_in(DEPLOY / name)
    return document


def manifests(overlay: str) -> list[Document]:
    """Return what an overlay applies, with what it is built on."""
    below = manifests(BUILT_ON[overlay]) if overlay in BUILT_ON else []
    paths = sorted((KUBERNETES / overlay).glob("*.yaml"))
    return [*below, *(document for path in paths for document in documents_in(path))]


def settings_of(named: dict[str, Any], where: str) -> Iterator[str]:
    for name, value in named.items():
        if name.startswith("RANKD_") and name not in VARIABLES:
            yield f"{where}: {name} is no setting of rankd"
        if not isinstance(value, str):
            yield f"{where}: {name} must be text, quote it"


def command_problems(arguments: list[str], where: str) -> Iterator[str]:
    if not arguments or arguments[0] not in commands():
        yield f"{where}: {arguments} is no command of rankd"


def image_problems(image: str, where: str) -> Iterator[str]:
    if not PINNED.fullmatch(image) or image.endswith(":latest"):
        yield f"{where}: {image} names no version"
    if image.startswith("rankd:") and image != f"rankd:{VERSION}":
        yield f"{where}: {image} is not this version, {VERSION}"


# compose.yaml and its variants


def compose_problems(file: Document, least_by_role: dict[str, int]) -> Iterator[str]:
    """Say what is wrong with the compose file."""
    services = file["services"]
    for name, service in services.items():
        yield from image_problems(service["image"], name)
        if "stop_grace_period" not in service:
            yield f"{name}: is killed after ten seconds without a stop_grace_period"
        yield from settings_of(service.get("environment", {}), name)
        for variable, value in service.get("environment", {}).items():
            if SECRET_NAME.search(variable) and not ANY_REPLACED.search(value):
                yield f"{name}: {variable} holds a secret"
            if (match := PASSWORD_IN_URL.search(value)) and not match[1].startswith("$"):
                yield f"{name}: {variable} holds a password"
        if service["image"].startswith("rankd:"):
            yield from command_problems(service["command"], name)
        listens = not service["image"].startswith("rankd:") or service["command"][0] in ("serve", "project")
        if listens and "healthcheck" not in service:
            yield f"{name}: has no healthcheck"
        for other, how in service.get("depends_on", {}).items():
            waits_for_end = how["condition"] == "service_completed_successfully"
            if other not in services or (not waits_for_end and "healthcheck" not in services[other]):
                yield f"{name}: waits for {other}, which never says that it is ready"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source not in file["volumes"] and not (DEPLOY / source).exists():
                yield f"{name}: {source} is neither a volume nor a file"
    roles = [service["command"][0] for service in services.values() if service["image"].startswith("rankd:")]
    for role, least in least_by_role.items():
        if roles.count(role) < least:
            yield f"{role}: {roles.count(role)} of at least {least}"
    if "redis" not in services:
        return
    redis = " ".join(services["redis"]["command"])
    for option in ("--appendonly yes", "--maxmemory-policy noeviction"):
        if option not in redis:
            yield f"redis: runs without {option}"


@composes
def test_the_compose_file_is_sound(name: str) -> None:
    assert list(compose_problems(compose(name), COMPOSES[name])) == []


@pytest.mark.parametrize(("name", "role"), [("compose.yaml", "serve"), ("compose.redis.yaml", "project")])
def test_whoever_ranks_has_a_volume_of_its_own(name: str, role: str) -> None:
    services = compose(name)["services"]
    volumes = [tuple(service["volumes"]) for service in services.values() if service.get("command", [""])[0] == role]

    assert len(set(volumes)) == len(volumes) == 2


def test_the_server_beside_kafka_has_a_configuration_that_is_read() -> None:
    config = load_config(DEPLOY / "rankd.kafka.toml", {})
    host, _, port = config.outbox.url.removeprefix("kafka://").partition(":")
    broker = compose("compose.kafka.yaml")["services"][host]

    assert broker["environment"]["KAFKA_ADVERTISED_LISTENERS"] == f"BROKER://{host}:{port}"
    assert config.ledger.url == "sqlite:/var/lib/rankd/data"


def example_environment() -> dict[str, str]:
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_what_compose_asks_for_is_in_the_example() -> None:
    """And holds nothing that anybody would leave in place."""
    given = example_environment()
    texts = [(DEPLOY / name).read_text() for name in COMPOSES]
    asked = {name for text in texts for name, _ in ANY_REPLACED.findall(text)}

    assert asked == set(given)
    assert [name for name, value in given.items() if SECRET_NAME.search(name) and value] == []


@pytest.mark.parametrize("filled_in", [("PASSWORD",), ("PASSWORD", "SECRET")])
@pytest.mark.parametrize(
    ("name", "ranks"),
    [("compose.yaml", "engine:"), ("compose.redis.yaml", "redis://"), ("compose.kafka-ledger.yaml", "engine:")],
)
def test_rankd_starts_with_what_compose_gives_it(
    name: str, ranks: str, filled_in: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With .env.example, once its passwords are filled in, or its secret too."""
    given = {name: FILLED_IN if name.endswith(filled_in) else value for name, value in example_environment().items()}
    for service_name, service in compose(name)["services"].items():
        if not service["image"].startswith("rankd:"):
            continue
        environment = {
            variable: ANY_REPLACED.sub(lambda asked: given[asked[1]], value)
            for variable, value in service["environment"].items()
        }
        assert load_config(None, environment).ranks.url.startswith(ranks), service["command"]
        with monkeypatch.context() as patch:
            for variable, value in environment.items():
                patch.setenv(variable, value)
            checked = CliRunner().invoke(app, ["config", "check"])
        assert checked.exit_code == 0, f"{service_name}: {checked.output}"


# kubernetes/


def pod_of(manifest: Document) -> Document:
    pod: Document = manifest["spec"]["template"]["spec"]
    return pod


def manifest_problems(manifest: Document) -> Iterator[str]:
    """Say what is wrong with one manifest."""
    kind, where = manifest["kind"], f"{manifest['kind']} {manifest.get('metadata', {}).get('name', '')}"
    if kind in ("ConfigMap", "Secret"):
        yield from settings_of(manifest.get("data", {}) | manifest.get("stringData", {}), where)
    if kind == "ConfigMap":
        yield from (f"{where}: {name} belongs in the Secret" for name in manifest["data"] if SECRET_NAME.search(name))
    if kind not in WORKLOADS:
        return
    pod = pod_of(manifest)
    if kind != "Job" and "terminationGracePeriodSeconds" not in pod:
        yield f"{where}: says not how long it may take to stop"
    if not pod["securityContext"].get("runAsNonRoot"):
        yield f"{where}: may run as root"
    selected = manifest["spec"].get("selector", {}).get("matchLabels", {})
    if not selected.items() <= manifest["spec"]["template"]["metadata"]["labels"].items():
        yield f"{where}: does not select its own pods"
    for container in pod["containers"]:
        yield from image_problems(container["image"], where)
        yield from command_problems(container["args"], where)
        if "memory" not in container["resources"].get("limits", {}):
            yield f"{where}: has no limit of memory"
        yield from (
            f"{where}: {variable['name']} holds a value" for variable in container.get("env", ()) if "value" in variable
        )
        if (role := container["args"][0]) in PROBES:
            yield from probe_problems(container, PROBES[role], where)


def probe_problems(container: Document, probes: set[str], where: str) -> Iterator[str]:
    ports = {port["name"] for port in container.get("ports", ())}
    for probe in sorted(probes):
        path = container.get(probe, {}).get("httpGet", {})
        wanted = "/healthz" if probe == "livenessProbe" else "/readyz"
        if path.get("path") != wanted or path.get("port") not in ports:
            yield f"{where}: {probe} must ask {wanted} on a port it has"


@overlays
def test_every_manifest_is_sound(overlay: str) -> None:
    assert [problem for manifest in manifests(overlay) for problem in manifest_problems(manifest)] == []


@overlays
def test_every_role_has_its_workload(overlay: str) -> None:
    roles = {
        pod_of(manifest)["containers"][0]["args"][0]: manifest
        for manifest in manifests(overlay)
        if manifest["kind"] in WORKLOADS
    }

    assert {role: manifest["kind"] for role, manifest in roles.items()} == WORKLOADS_OF[overlay]
    for workload in roles.values():
        if workload["kind"] == "StatefulSet":  # whoever ranks: another takes over, and each has a volume
            assert workload["spec"]["replicas"] >= 2
            assert workload["spec"]["volumeClaimTemplates"]
    assert roles["migrate"]["metadata"]["name"].endswith(VERSION.replace(".", "-"))


@overlays
def test_budgets_services_and_the_autoscaler_speak_of_pods_that_exist(overlay: str) -> None:
    applied = manifests(overlay)
    pods = [manifest["spec"]["template"]["metadata"]["labels"] for manifest in applied if manifest["kind"] in WORKLOADS]
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in applied if "metadata" in manifest}
    for manifest in applied:
        selector = manifest.get("spec", {}).get("selector", {})
        labels = selector.get("matchLabels", selector)
        if manifest["kind"] in ("Service", "PodDisruptionBudget"):
            assert any(labels.items() <= pod.items() for pod in pods), manifest["metadata"]["name"]
        if manifest["kind"] == "HorizontalPodAutoscaler":
            target = manifest["spec"]["scaleTargetRef"]
            assert (target["kind"], target["name"]) in names
    budgets = [manifest for manifest in applied if manifest["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == len(WORKLOADS_OF[overlay]) - 1  # all but the job


@overlays
def test_what_is_applied_is_everything_but_the_example_of_a_secret(overlay: str) -> None:
    folder = KUBERNETES / overlay
    (kustomization,) = documents_in(folder / "kustomization.yaml")
    there = {path.name for path in folder.glob("*.yaml")} - {"kustomization.yaml", "secret.example.yaml"}
    assert set(kustomization["resources"]) == there | {f"../{BUILT_ON[overlay]}"}
    assert [image["newTag"] for image in kustomization["images"]] == [VERSION]


def test_the_common_part_is_applied_whole() -> None:
    (kustomization,) = documents_in(BASE / "kustomization.yaml")
    assert set(kustomization["resources"]) == {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}


# The image, and the rules themselves


def test_the_image_is_made_of_named_versions_and_runs_as_nobody_in_particular() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    bases = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    copied = {
        source for line in re.findall(r"^COPY (?!--)(.+) \S+$", dockerfile, re.MULTILINE) for source in line.split()
    }

    assert bases
    assert [problem for base in bases for problem in image_problems(base, "Dockerfile")] == []
    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert re.search(r"^USER 10001", dockerfile, re.MULTILINE)
    assert set(re.findall(r"RANKD_\w+", dockerfile)) <= set(VARIABLES)


def test_every_file_of_the_deployment_can_be_read() -> None:
    read = [path for path in files_ending(".yaml", ".yml", under="deploy") if documents_in(path)]

    assert len(read) == 19, [shown(path) for path in read]


def in_compose(change: Callable[[Document], object]) -> list[str]:
    broken = copy.deepcopy(compose("compose.redis.yaml"))
    change(broken["services"])
    return list(compose_problems(broken, COMPOSES["compose.redis.yaml"]))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: s["redis"].update(image="redis:latest"), "names no version"),
        (lambda s: s["serve-1"].update(command=["server"]), "is no command"),
        (lambda s: s["serve-2"].pop("healthcheck"), "has no healthcheck"),
        (lambda s: s["serve-1"]["environment"].update(RANKD_RANK_URL="redis://x"), "is no setting"),
        (lambda s: s["postgres"]["environment"].update(POSTGRES_PASSWORD="hunter2"), "holds a secret"),
        (lambda s: s["migrate"]["environment"].update(RANKD_LEDGER_URL="postgresql://a:b@c/d"), "holds a"),
        (lambda s: s["redis"].update(command=["redis-server"]), "runs without"),
        (lambda s: s.pop("project-2"), "project: 1 of at least 2"),
        (lambda s: s["project-1"].pop("stop_grace_period"), "is killed"),
        (lambda s: s["serve-1"].update(image="rankd:0.0.9"), "is not this version"),
    ],
)
def test_the_rules_notice_what_is_wrong(change: Callable[[Document], object], expected: str) -> None:
    assert any(expected in problem for problem in in_compose(change))


@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        ("Deployment", lambda m: pod_of(m)["containers"][0].pop("readinessProbe"), "readinessProbe must ask"),
        ("Deployment", lambda m: pod_of(m)["containers"][0].update(image="rankd"), "names no version"),
        ("StatefulSet", lambda m: pod_of(m)["containers"][0].update(args=["projector"]), "is no command"),
        ("ConfigMap", lambda m: m["data"].update(RANKD_SERVER_PROT="1"), "is no setting"),
        ("ConfigMap", lambda m: m["data"].update(RANKD_SERVER_PORT=8080), "must be text"),
        ("ConfigMap", lambda m: m["data"].update(RANKD_LEDGER_URL="postgresql://c"), "belongs in the Secret"),
    ],
)
def test_the_rules_notice_what_is_wrong_in_a_manifest(
    kind: str, change: Callable[[Document], object], expected: str
) -> None:
    broken = copy.deepcopy(next(manifest for manifest in manifests("redis") if manifest["kind"] == kind))
    change(broken)

    assert any(expected in problem for problem in manifest_problems(broken))
