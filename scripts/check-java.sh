#!/usr/bin/env bash
# Fails, saying what to install, unless Spark will find Java 17 or 21 (JAVA_HOME first, then PATH, as Spark does).
set -euo pipefail

install="Install it (apt-get install openjdk-17-jre-headless, or brew install openjdk@17), or point JAVA_HOME to it."

if [ -n "${JAVA_HOME:-}" ]; then
    java="$JAVA_HOME/bin/java"
    [ -x "$java" ] || { echo "error: JAVA_HOME is $JAVA_HOME, which has no bin/java; Java 17 or 21 is needed. $install" >&2; exit 1; }
else
    java="$(command -v java)" || { echo "error: no java found; Java 17 or 21 is needed. $install" >&2; exit 1; }
fi

# macOS has a /usr/bin/java that only says that there is none, so ask it. Options set by the environment print lines of their own.
version="$("$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)" || true
case "$version" in
    17 | 21) ;;
    *) echo "error: $java is Java ${version:-of an unknown version}; Java 17 or 21 is needed. $install" >&2; exit 1 ;;
esac
