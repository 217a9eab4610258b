#!/bin/busybox sh
# Init of a guest that prints the topology it sees, one line per CPU, and then waits to be
# observed.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec >/dev/ttyS0 2>&1

# The kernel shows the APIC id only in cpuinfo.
apicid() { awk -v cpu="$1" '$1 == "processor" { at = $3 } $1 == "apicid" && at == cpu { print $3 }' /proc/cpuinfo; }
for dir in /sys/devices/system/cpu/cpu[0-9]*; do
    cpu=${dir##*cpu}
    cd "$dir/topology" || exit
    echo "CPU $cpu apicid $(apicid "$cpu") package $(cat physical_package_id)" \
        "die $(cat die_id) core $(cat core_id) siblings $(cat thread_siblings_list)"
done
echo END
while :; do sleep 3600; done
