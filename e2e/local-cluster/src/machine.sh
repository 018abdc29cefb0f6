# The first process of a bare machine: gives it its disk, its name and a kernel to tune, then waits and reaps.
# $1: the program to become; $2: the machine's name; $3: its address; $4: the folder of its disk, which outlives the
# machine's processes; the rest: folders that stay as they are.
set -e
program=$1 name=$2 address=$3 disk=$4
shift 4
if [ ! -d "$disk" ]; then
    rm -rf "$disk.new"
    mkdir -p "$disk.new/lib" "$disk.new/log" "$disk.new/opt" "$disk.new/usr" "$disk.new/work"
    cp -a /etc "$disk.new/etc"
    rm -rf "$disk.new/etc/kubernetes" "$disk.new/etc/cni"
    echo "$name" >"$disk.new/etc/hostname"
    echo "$address $name" >>"$disk.new/etc/hosts"
    mv "$disk.new" "$disk"
fi
mount -t tmpfs tmpfs /mnt
mkdir /mnt/disk
mount --bind "$disk" /mnt/disk
kept=0
for folder in "$@"; do
    kept=$((kept + 1))
    mkdir "/mnt/$kept"
    mount --bind "$folder" "/mnt/$kept"
done
mount --bind /mnt/disk/etc /etc
mount --bind /mnt/disk/lib /var/lib
mount --bind /mnt/disk/log /var/log
mount --bind /mnt/disk/opt /opt
mount -t tmpfs -o mode=755 tmpfs /run
# Kubelets and pods of kubeadm make folders of it, as for plug-ins and for modules of the kernel.
mount -t overlay overlay -o lowerdir=/usr,upperdir=/mnt/disk/usr,workdir=/mnt/disk/work /usr
kept=0
for folder in "$@"; do
    kept=$((kept + 1))
    mkdir -p "$folder"
    mount --bind "/mnt/$kept" "$folder"
    umount "/mnt/$kept"
done
umount /mnt/disk /mnt
hostname "$name"
