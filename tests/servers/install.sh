#!/usr/bin/env bash
# Install what the tests start and the engine is compiled with, where a Debian or Ubuntu lets us: as root, or with a sudo
# that asks for no password. Otherwise say which command would, and which tests are not run. `make test` calls this.
set -euo pipefail

missing=() without=()
lacks() { # package, what is not run without it
  missing+=("$1")
  [ -z "${2:-}" ] || without+=("$2 ($1)")
}

command -v g++ > /dev/null || command -v clang++ > /dev/null || lacks g++
python3 -c 'import ensurepip' 2> /dev/null || lacks python3-venv
python3 -c 'import os, sysconfig; os.stat(sysconfig.get_paths()["include"] + "/Python.h")' 2> /dev/null || lacks python3-dev
command -v redis-server > /dev/null || lacks redis-server "ranks in Redis, the scaled-out form"
command -v postgres > /dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' > /dev/null ||
  lacks postgresql "the ledger in PostgreSQL, the scaled-out form"
command -v chromium-headless-shell > /dev/null || command -v chromium > /dev/null ||
  command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null ||
  lacks chromium "pages in a browser"
command -v wrk > /dev/null || lacks wrk "benchmarks over HTTP"
command -v java > /dev/null || lacks default-jre-headless "scores through Kafka"
kafka=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/rankd-tests/kafka-4.1.0
[ -e "$kafka/complete" ] || command -v mvn > /dev/null || lacks maven "scores through Kafka"

gateway=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/rankd-tests/versitygw-1.8.0
[ -x "$gateway/versitygw" ] || command -v go > /dev/null || lacks golang-go "the archive in a bucket"

# The jars of Kafka stay outside of the repository; Maven resolves them from kafka.pom.xml, once.
fetch_kafka() {
  if [ ! -e "$kafka/complete" ] && command -v mvn > /dev/null; then
    echo "fetching Apache Kafka for the tests"
    if mvn -q -B -f "${0%/*}/kafka.pom.xml" dependency:copy-dependencies -DoutputDirectory="$kafka" > /dev/null; then
      : > "$kafka/complete"
    else
      echo "Apache Kafka could not be fetched: its tests are not run, and fail where CI=true"
    fi
  fi
}
# An S3 server over a folder, compiled once: two or three minutes. What Go fetches and compiles for it is not kept.
build_gateway() {
  if [ ! -x "$gateway/versitygw" ] && command -v go > /dev/null; then
    echo "building versitygw, an S3 server, for the tests"
    mkdir -p "$gateway"
    if GOPATH=$gateway/go GOCACHE=$gateway/go/cache GOBIN=$gateway/go/bin GOFLAGS=-modcacherw \
      go install -ldflags "-s -w" github.com/versity/versitygw/cmd/versitygw@v1.8.0 > "$gateway/build.log" 2>&1; then
      mv "$gateway/go/bin/versitygw" "$gateway/versitygw"
    else
      echo "versitygw could not be built: tests of the archive in a bucket are not run, and fail where CI=true"
    fi
    rm -rf "$gateway/go"
  fi
}
fetch() {
  fetch_kafka
  build_gateway
}
if [ ${#missing[@]} -eq 0 ]; then
  fetch
  exit 0
fi

if [ "$(id -u)" = 0 ]; then
  privileged=(env)
elif sudo -n true 2> /dev/null; then
  privileged=(sudo -n)
else
  privileged=()
fi
if [ ${#privileged[@]} -gt 0 ] && command -v apt-get > /dev/null; then
  install() {
    "${privileged[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o Dpkg::Options::=--force-confold "$@" > /dev/null
  }
  "${privileged[@]}" apt-get update -qq || true
  # Without its user interface the browser opens a page for a third of the processor time.
  if apt-cache show chromium-headless-shell > /dev/null 2>&1; then
    missing=("${missing[@]/%chromium/chromium-headless-shell}")
  fi
  echo "installing ${missing[*]}"
  # The tests start their own PostgreSQL: no other is wanted.
  if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
    "${privileged[@]}" mkdir -p /etc/postgresql-common
    echo 'create_main_cluster = false' | "${privileged[@]}" tee /etc/postgresql-common/createcluster.conf > /dev/null
  fi
  # One that cannot be had must not keep the others away.
  install "${missing[@]}" || for package in "${missing[@]}"; do
    install "$package" || echo "$package could not be installed: its tests are not run, and fail where CI=true"
  done
else
  echo "not installed: ${missing[*]}. To have everything tested: sudo apt-get install ${missing[*]}"
  for tests in "${without[@]}"; do echo "not run: $tests"; done
fi
fetch
