#!/bin/sh
# The image's entry point: makes an API key at the first start, then becomes `souveraine <command>`.
# Inside a container every caller comes from the bridge, so nobody is trusted without a key.
set -eu

data="${SOUVERAINE_DATA_DIR:-/data}"

is_writable() {
    mkdir -p -m 0700 "$data" 2>/dev/null && [ -w "$data" ]
}

has_key() {
    [ -n "${SOUVERAINE_API_KEY:-}${SOUVERAINE_API_KEY_FILE:-}" ] ||
        [ -n "${LETTA_SERVER_PASSWORD:-}${LETTA_SERVER_PASSWORD_FILE:-}" ]
}

make_key() {
    umask 077
    new="$data/.api_key.$(hostname).$$"
    python -c 'import secrets; print("sv-" + secrets.token_urlsafe(32))' >"$new"
    # The first of several containers that start at once wins; a link never shows half a key.
    if ln "$new" "$key_file" 2>/dev/null; then
        echo "An API key was made: $key_file (compose: docker compose exec web cat $key_file)"
    fi
    rm -f "$new"
}

if ! is_writable; then
    echo "The data directory $data cannot be written by uid $(id -u)." \
        "Give it to that user (chown -R $(id -u) <the mounted folder>), or start the container" \
        "with --user <the folder's owner>." >&2
    exit 1
fi
if ! has_key; then
    key_file="$data/api_key"
    [ -s "$key_file" ] || make_key
    # Settings that compose passes on empty would count as set.
    unset SOUVERAINE_API_KEY SOUVERAINE_API_KEY_FILE LETTA_SERVER_PASSWORD LETTA_SERVER_PASSWORD_FILE
    export SOUVERAINE_API_KEY_FILE="$key_file"
fi
exec souveraine "$@"
