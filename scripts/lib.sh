# Sourced by run and demo: paths of the binaries, the start of small VMs, and the end of
# all processes started here.
# shellcheck shell=bash

scratch=$(mktemp -d)
pids=()

die() {
    echo "virtlens: $*" >&2
    exit 1
}

# Ends the started processes by pid, and removes the scratch directory.
clean_up() {
    local pid
    trap - EXIT INT TERM HUP
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${pids[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Installs packages and builds the binaries; sets $bin to their directory.
build() {
    scripts/install-packages run
    command -v cargo >/dev/null ||
        die "cargo not found in PATH; install Rust with rustup, which installs the toolchain of rust-toolchain.toml"
    bin=$(scripts/build-release)
}

# Waits up to ten seconds for a line in the output file of a program.
wait_for() { # PATTERN FILE PID
    local tenths
    for ((tenths = 0; tenths < 100; tenths++)); do
        grep -qs -e "$1" "$2" && return
        kill -0 "$3" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Starts a minivm with one vCPU. It ends with this script, even if the script is killed:
# it reads its commands from a pipe that only the script holds open.
start_vm() { # NAME spin|halt
    local pid
    if [[ -z ${commands:-} ]]; then
        mkfifo "$scratch/commands"
        exec {commands}<>"$scratch/commands"
    fi
    "$bin/minivm" --name "$1" --start "$2" <"$scratch/commands" >"$scratch/$1" {commands}>&- &
    pid=$!
    pids+=("$pid")
    wait_for '"ready":true' "$scratch/$1" "$pid" || die "the VM $1 did not start"
}
