"""tests/servers/install.sh installs what is missing where it may, and otherwise says what would."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "servers" / "install.sh"
PRESENT = {"python3", "g++", "postgres", "redis-server", "chromium", "wrk", "java"}
JARS = Path("rankd-tests") / "kafka-4.1.0"
GATEWAY = Path("rankd-tests") / "versitygw-1.8.0"
MISSING = {"redis-server", "chromium", "wrk"}
SAID = [
    "not installed: redis-server chromium wrk. To have everything tested:"
    " sudo apt-get install redis-server chromium wrk",
    "not run: ranks in Redis, the scaled-out form (redis-server)",
    "not run: pages in a browser (chromium)",
    "not run: benchmarks over HTTP (wrk)",
]
NOTES_ONLY = 'printf "%s\\n" "$*" >> "$LOG"'
RUN_WAIT_S = 30


def run_with(
    folder: Path,
    commands: Iterable[str],
    *,
    sudo: str,
    user: int = 1_000,
    has_jars: bool = True,
    has_gateway: bool = True,
) -> list[str]:
    """Run the script where nothing but these commands is on the path; each of them only succeeds."""
    (folder / JARS).mkdir(parents=True)
    if has_jars:
        (folder / JARS / "complete").touch()
    if has_gateway:
        (folder / GATEWAY).mkdir(parents=True)
        (folder / GATEWAY / "versitygw").touch(0o755)
    scripts = dict.fromkeys(commands, "exit 0")
    scripts |= {name: f'exec {shutil.which(name)} "$@"' for name in ("mkdir", "mv", "rm")}
    if "go" in scripts:
        scripts["go"] = 'mkdir -p "$GOBIN" && : > "$GOBIN/versitygw"'
    scripts |= {"id": f"echo {user}", "sudo": sudo, "tee": "exit 0"}
    for name, script in scripts.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    done = subprocess.run(
        [bash, str(SCRIPT)],
        env={"PATH": str(folder), "LOG": str(folder / "log"), "XDG_CACHE_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=RUN_WAIT_S,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_without_privileges_one_command_and_the_groups_that_are_not_run_are_said(tmp_path: Path) -> None:
    assert run_with(tmp_path, {*PRESENT - MISSING, "apt-get"}, sudo="exit 1") == SAID


def test_on_another_system_the_same_is_said_whatever_the_privileges(tmp_path: Path) -> None:
    assert run_with(tmp_path, PRESENT - MISSING, sudo="exit 0") == SAID


@pytest.mark.parametrize("sudo", ["exit 0", "exit 1"], ids=["privileged", "unprivileged"])
def test_where_nothing_is_missing_nothing_is_said_or_done(tmp_path: Path, sudo: str) -> None:
    assert run_with(tmp_path, {*PRESENT, "apt-get"}, sudo=sudo) == []


def test_by_sudo_without_a_password_it_is_installed(tmp_path: Path) -> None:
    lines = run_with(tmp_path, {*PRESENT - MISSING, "apt-get"}, sudo=NOTES_ONLY)

    assert lines == ["installing redis-server chromium wrk"]
    asked = (tmp_path / "log").read_text().splitlines()
    assert asked[:2] == ["-n true", "-n apt-get update -qq"]
    assert asked[-1].startswith("-n env DEBIAN_FRONTEND=noninteractive apt-get install -y")
    assert asked[-1].endswith("redis-server chromium wrk")


def test_the_browser_is_installed_without_its_user_interface_where_that_is_a_package(tmp_path: Path) -> None:
    lines = run_with(tmp_path, {*PRESENT - MISSING, "apt-get", "apt-cache"}, sudo="exit 0")

    assert lines == ["installing redis-server chromium-headless-shell wrk"]


def test_a_package_that_cannot_be_had_does_not_keep_the_others_away(tmp_path: Path) -> None:
    refuses_wrk = NOTES_ONLY + '; case "$*" in *install*wrk) exit 1; esac'
    lines = run_with(tmp_path, {*PRESENT - MISSING, "apt-get"}, sudo=refuses_wrk)

    assert lines[-1] == "wrk could not be installed: its tests are not run, and fail where CI=true"
    asked = (tmp_path / "log").read_text().splitlines()
    assert [line.rpartition(" ")[2] for line in asked[-3:]] == ["redis-server", "chromium", "wrk"]


def test_the_jars_of_kafka_are_fetched_once(tmp_path: Path) -> None:
    lines = run_with(tmp_path, {*PRESENT, "mvn"}, sudo="exit 1", has_jars=False)

    assert lines == ["fetching Apache Kafka for the tests"]
    assert (tmp_path / JARS / "complete").exists()


def test_without_java_and_maven_scores_through_kafka_are_not_run(tmp_path: Path) -> None:
    lines = run_with(tmp_path, PRESENT - {"java"}, sudo="exit 1", has_jars=False)

    assert lines == [
        "not installed: default-jre-headless maven. To have everything tested:"
        " sudo apt-get install default-jre-headless maven",
        "not run: scores through Kafka (default-jre-headless)",
        "not run: scores through Kafka (maven)",
    ]


def test_the_s3_server_is_compiled_once(tmp_path: Path) -> None:
    lines = run_with(tmp_path, {*PRESENT, "go"}, sudo="exit 1", has_gateway=False)

    assert lines == ["building versitygw, an S3 server, for the tests"]
    assert sorted(path.name for path in (tmp_path / GATEWAY).iterdir()) == ["build.log", "versitygw"]


def test_without_go_the_archive_in_a_bucket_is_not_run(tmp_path: Path) -> None:
    lines = run_with(tmp_path, PRESENT, sudo="exit 1", has_gateway=False)

    assert lines == [
        "not installed: golang-go. To have everything tested: sudo apt-get install golang-go",
        "not run: the archive in a bucket (golang-go)",
    ]
