#!/bin/sh
# node.sh DIR ADDRESS GATEWAY PODS IMAGE...: makes a machine of tests/vm a node of a cluster, and
# ends with its kubelet. DIR has the files of `ControlPlane::write_node_files`. The programs
# are found in PATH, below the machine's shared, read-only root; what they write is in memory.
set -eu
here=$(dirname "$0") dir=$1 address=$2 gateway=$3 pods=$4
shift 4

# Volumes of pods are mounted below /var/lib/kubelet.
mount -t tmpfs var /var
mount --make-rshared /
mkdir -p /run/node/cni /var/lib /var/log
cp "$here/kubelet.yaml" "$here/containerd.toml" "$dir"/* /run/node/
sed "s|PODS|$pods|" "$here/pods.conflist" >/run/node/cni/pods.conflist
ln -s "$(dirname "$(command -v host-local)")" /run/node/cni-plugins

ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$gateway"
echo 1 >/proc/sys/net/ipv4/ip_forward

containerd --config /run/node/containerd.toml &
tries=0
until ctr --address /run/node/containerd.sock version >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 120 ] || { echo "containerd does not answer" && exit 1; }
    sleep 1
done
for image; do
    ctr --address /run/node/containerd.sock --namespace k8s.io images import "$image"
done
exec kubelet --config=/run/node/kubelet.yaml --kubeconfig=/run/node/kubeconfig \
    --node-ip="$address"
