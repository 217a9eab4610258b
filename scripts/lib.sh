# Shared by run and demo, which source it: where binaries are, how small VMs
# are started, and that everything started here is ended again.
# shellcheck shell=bash

scratch=$(mktemp -d)
pids=()

die() {
    echo "virtlens: $*" >&2
    exit 1
}

# Ends what was started, by its pid, and removes the scratch directory.
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

# Packages and binaries, which are then in $bin.
build() {
    scripts/install-packages run
    command -v cargo >/dev/null ||
        die "there is no cargo on PATH; install Rust with rustup, the toolchain file does the rest"
    bin=$(scripts/build-release)
}

# Waits up to ten seconds for a line in a file that a program of ours writes.
wait_for() { # PATTERN FILE PID
    local tenths
    for ((tenths = 0; tenths < 100; tenths++)); do
        grep -qs -e "$1" "$2" && return
        kill -0 "$3" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Starts a minivm of one vCPU, which ends with this script even if that is
# killed: it reads its commands from a pipe that only the script holds open.
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
