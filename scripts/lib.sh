# Sourced by run and demo: the build, the small VMs, and the removal of all that was
# started or created.
# shellcheck shell=bash

scratch=$(mktemp -d)
pids=()

die() {
    echo "virtlens: $*" >&2
    exit 1
}

# Ends the started processes by pid, and removes the cgroup and the scratch directory.
clean_up() {
    local pid
    trap - EXIT INT TERM HUP
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    for pid in "${pids[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    [[ -z ${limited:-} ]] || rmdir "$limited"
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

# Creates a cgroup with a CPU limit of 0.25 cores, on cgroup v1 or v2; sets $limited to its
# directory.
create_limited_cgroup() {
    local root
    root=$(awk '$3 == "cgroup" && ("," $4 ",") ~ /,cpu,/ { print $2; exit }' /proc/mounts)
    if [[ -n $root ]]; then
        mkdir "$root/virtlens-demo-$$"
        limited=$root/virtlens-demo-$$
        echo 25000 >"$limited/cpu.cfs_quota_us"
        return
    fi
    root=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    [[ -n $root ]] || die "no cgroup file system is mounted"
    echo +cpu >"$root/cgroup.subtree_control"
    mkdir "$root/virtlens-demo-$$"
    limited=$root/virtlens-demo-$$
    echo "25000 100000" >"$limited/cpu.max"
}

# Starts a minivm with one vCPU, in the cgroup of that directory. It ends with this script,
# even if the script is killed: it reads its commands from a pipe that only the script
# holds open.
start_vm() { # NAME spin|halt [DIRECTORY]
    local pid
    if [[ -z ${commands:-} ]]; then
        mkfifo "$scratch/commands"
        exec {commands}<>"$scratch/commands"
    fi
    (
        [[ -z ${3:-} ]] || echo "$BASHPID" >"$3/cgroup.procs"
        exec "$bin/minivm" --name "$1" --start "$2" {commands}>&-
    ) <"$scratch/commands" >"$scratch/$1" &
    pid=$!
    pids+=("$pid")
    wait_for '"ready":true' "$scratch/$1" "$pid" || die "the VM $1 did not start"
}

# Starts the VMs of the demo: one spins, one is idle, one spins under a CPU limit.
start_demo_vms() {
    create_limited_cgroup
    start_vm demo-spinning spin
    start_vm demo-idle halt
    start_vm demo-throttled spin "$limited"
}
