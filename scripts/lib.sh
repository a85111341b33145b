# Shared by the scripts here; sourced, not run.
# shellcheck shell=bash

fail() {
    echo "weir: $*" >&2
    exit 2
}

# Runs a command as root: directly, or by sudo where that works without a password being typed or with a terminal.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "root is needed for: $*
  run this as root, or install sudo"
    fi
}

# install PACKAGE…: through apt-get, refreshing the lists only when a package is not known yet.
install() {
    command -v apt-get >/dev/null || fail "missing packages: $* (no apt-get here; install them with this system's own tool)"
    echo "installing $*" >&2
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 && return
    as_root apt-get update -q >/dev/null || fail "apt-get update failed; is the network up?"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@" >/dev/null ||
        fail "apt-get could not install: $*"
}

# need_command COMMAND PACKAGE: installs the package when there is no such command.
need_command() {
    PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null 2>&1 || install "$2"
}

# install_asleep PACKAGE…: as install, for packages that would start a daemon of their own: ours are started by recipes alone.
install_asleep() {
    local policy=/usr/sbin/policy-rc.d
    if [ -e "$policy" ]; then
        # Whoever wrote one has said what may start.
        install "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    # In a subshell: a failed install ends the script, and the policy must not stay.
    (install "$@") || { as_root rm -f "$policy"; exit 2; }
    as_root rm -f "$policy"
}
