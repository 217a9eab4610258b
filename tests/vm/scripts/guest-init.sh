#!/bin/busybox sh
# Init of the nested guest: uses its devices and executes commands of the rig from its
# second serial port, one per line: "start LOAD" or "stop LOAD", "fill MIB", "empty it" or
# "online all". Every command is answered with a line.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
for module in /modules/*.ko; do
    insmod "$module"
done
mkdir -p /share
mount -t virtiofs share /share
mkdir -p /ballast
# Huge pages, so that the guest takes again the memory that it freed. Small pages would
# come from the gaps between other pages first, which are too small to be reported.
mount -t tmpfs -o huge=always ballast /ballast
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.77.0.2 netmask 255.255.255.0 up

# Every load runs until its file in /tmp is removed.
spin() { while [ -e /tmp/cpu ]; do i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done; done; }
load() {
    case $1 in
    cpu) spin & spin; wait ;;
    cpu1)
        # Only on the second CPU.
        taskset 2 sh -c 'while [ -e /tmp/cpu1 ]; do i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done; done' ;;
    virtiofs)
        while [ -e /tmp/virtiofs ]; do
            dd if=/dev/zero of=/share/blob bs=64k count=64 conv=fsync
            dd if=/share/blob of=/dev/null bs=64k
            rm /share/blob
        done ;;
    disk)
        while [ -e /tmp/disk ]; do
            dd if=/dev/vda of=/dev/null bs=64k count=256 iflag=direct
        done ;;
    memory)
        # Fills and frees 64 MiB; the guest reports the free pages to the host.
        while [ -e /tmp/memory ]; do
            dd if=/dev/zero of=/tmp/ballast bs=1M count=64
            rm /tmp/ballast
            sleep 4
        done ;;
    esac
}

order() {
    case "$1 $2" in
    "start cpu" | "start cpu1" | "start virtiofs" | "start disk" | "start memory")
        touch "/tmp/$2"
        load "$2" >/dev/null 2>&1 &
        eval "$2=$!"
        echo ok ;;
    "stop cpu" | "stop cpu1" | "stop virtiofs" | "stop disk" | "stop memory")
        rm -f "/tmp/$2"
        eval "wait \${$2:-}"
        echo ok ;;
    "fill $2") dd if=/dev/zero of=/ballast/fill bs=2M count=$(($2 / 2)) >/dev/null 2>&1 && echo ok ;;
    "online all")
        # Nothing else onlines a CPU that was plugged in.
        for cpu in /sys/devices/system/cpu/cpu[1-9]*/online; do
            [ "$(cat "$cpu")" = 1 ] || echo 1 >"$cpu"
        done && echo ok ;;
    "empty it") rm -f /ballast/fill && echo ok ;;
    *) echo "error unknown order $1 $2" ;;
    esac
}

# Line mode: a SIGCHLD makes the shell restart its read, which must not lose half a
# command.
stty -F /dev/ttyS1 icanon -echo -onlcr
exec 3<>/dev/ttyS1
echo "ready $(nproc)" >&3
while read -r verb load <&3; do
    order "$verb" "$load" >&3
done
