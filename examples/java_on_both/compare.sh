#!/bin/sh
# Runs Orders.java on two services, shows what it printed on the first one, and ends with 1 where the other one differs.
#
#     examples/java_on_both/compare.sh JARS pulsar://a-pulsar:6650 pulsar://a-gateway:6650
#
# JARS is a folder with the jars of Pulsar's Java client, such as `lib` of its distribution. JAVA names another Java than
# that of the PATH: a JDK of 17 or later, which runs programs from their source.
set -eu
[ $# = 3 ] || { echo "usage: $0 JARS URL URL" >&2; exit 2; }
program=$(dirname "$0")/Orders.java
printed=$(mktemp -d)
trap 'rm -rf "$printed"' EXIT

on() { # URL: what the program prints there, without the log of the client
    "${JAVA:-java}" -cp "$jars/*" "$program" "$1" > "$printed/all"
    sed -n 's/^> //p' "$printed/all"
}

jars=$1
on "$2" > "$printed/one"
on "$3" > "$printed/other"
cat "$printed/one"
diff "$printed/one" "$printed/other"
echo "$(grep -c '' "$printed/one") lines, no difference"
