#!/usr/bin/env bash
# Prepares the clients that the checks use: one Python venv with pinned packages, and MySQL's JDBC driver.
# Idempotent; prints the cache folder, $LAKESQL_CLIENTS_CACHE (default ~/.cache/lakesql-clients, about 400 MB).
# Needs: python3 with venv, mvn. The mariadb client is the system's own (Debian: mariadb-client).
set -euo pipefail
HERE="$(cd "$(dirname "$0")" && pwd)"
CACHE="${LAKESQL_CLIENTS_CACHE:-$HOME/.cache/lakesql-clients}"
CONNECTOR=9.7.0
mkdir -p "$CACHE/jars"
exec 9>"$CACHE/.lock"; flock 9
[ -x "$CACHE/venv/bin/python" ] || python3 -m venv "$CACHE/venv"
if ! cmp -s "$HERE/requirements.txt" "$CACHE/requirements.txt"; then
  "$CACHE/venv/bin/pip" -q install --disable-pip-version-check -r "$HERE/requirements.txt" >&2
  cp "$HERE/requirements.txt" "$CACHE/requirements.txt"
fi
jar="$CACHE/jars/mysql-connector-j-$CONNECTOR.jar"
[ -s "$jar" ] || mvn -B -q dependency:copy -Dartifact="com.mysql:mysql-connector-j:$CONNECTOR" -DoutputDirectory="$CACHE/jars" -Dmdep.useBaseVersion=true >&2
[ -s "$jar" ] || { echo "mysql-connector-j $CONNECTOR was not obtained" >&2; exit 1; }
cp "$jar" "$CACHE/jars/mysql-connector-j.jar.tmp" && mv "$CACHE/jars/mysql-connector-j.jar.tmp" "$CACHE/jars/mysql-connector-j.jar"
echo "$CACHE"
