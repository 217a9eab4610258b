#!/bin/busybox sh
# Init of the VM under test: loads modules, mounts the host's root read-only below
# everything, and executes vmtest-inside.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev

for module in /modules/*.ko; do
    insmod "$module" || echo "cannot load $module"
done

root=/root
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 hostroot $root || exec sh
# Keeps a checkout or a cache below /tmp or /run visible.
while read -r dir || [ -n "$dir" ]; do
    mkdir -p "/kept$dir"
    mount --bind "$root$dir" "/kept$dir"
done </keep
mount -t tmpfs tmp $root/tmp
mount -t tmpfs run $root/run
while read -r dir || [ -n "$dir" ]; do
    mkdir -p "$root$dir"
    mount --move "/kept$dir" "$root$dir"
done </keep
cp /bin/busybox /plan.json $root/run/
mount --move /proc $root/proc
mount --move /sys $root/sys
mount --move /dev $root/dev
mkdir -p $root/dev/shm $root/dev/pts
mount -t tmpfs shm $root/dev/shm
mount -t devpts pts $root/dev/pts

sys=$root/sys
mount -t cgroup2 cgroup2 $sys/fs/cgroup
mount -t bpf bpf $sys/fs/bpf
mount -t debugfs debugfs $sys/kernel/debug
mount -t tracefs tracefs $sys/kernel/tracing
ifconfig lo 127.0.0.1 up

inside=$(cat /inside)
exec switch_root $root /run/busybox sh -c "
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    $inside </dev/console
    /run/busybox reboot -f"
