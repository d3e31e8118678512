#!/bin/sh
# Runs checks.sh on a throw-away copy of this machine: its files under an overlay in memory, its own systemd, processes, users,
# network and control group. Whatever the packages do there is gone with the last process, however that ends, and no port or user
# of this machine is touched, nor a setting of its kernel. Several may run at once. Needs root.
#
#   machine.sh FOLDER    FOLDER holds one.deb, two.deb, init and checks.sh. FOLDER/log gets what the checks print, FOLDER/console
#                        what systemd says
set -eu
folder=$1
machine=$folder/machine

# The group may keep a process for a moment after its end.
remove_group() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        find "$1" -depth -type d -exec rmdir {} + 2>/dev/null && return
        sleep 0.2
    done
    echo "machine: $1 could not be removed" >&2
}

case ${2:-} in
"")
    mkdir "$machine"
    # In a mount namespace of its own: the mounts below vanish with it.
    exec unshare --mount --propagation private "$0" "$folder" group
    ;;
group)
    mount -t tmpfs -o mode=755 tmpfs "$machine"
    mkdir "$machine/groups" "$machine/upper" "$machine/work" "$machine/root"
    mount -t cgroup2 none "$machine/groups"
    # Of a run that was killed. Groups of another run at the same time stay, its empty ones too: those have processes, or are new.
    find "$machine/groups" -maxdepth 1 -name 'weir-package.*' -mmin +10 | while read -r left; do
        ! grep -q "^populated 0" "$left/cgroup.events" || remove_group "$left"
    done
    group=$(mktemp -d "$machine/groups/weir-package.XXXXXX")
    trap 'remove_group "$group"' EXIT
    # The child enters the group, which is the root of what it sees. systemd ends by the reboot call, which a namespace of
    # processes turns into a signal: its status says nothing.
    sh -c 'echo $$ > "$1/cgroup.procs" && exec unshare --cgroup --ipc --mount --net --pid --uts --fork --kill-child "$2" "$3" boot' \
        sh "$group" "$0" "$folder" || true
    cat "$folder/log" || cat "$folder/console"
    grep -q "^# fail 0$" "$folder/log"
    ;;
boot)
    root=$machine/root
    mount -t overlay -o "lowerdir=/,upperdir=$machine/upper,workdir=$machine/work" overlay "$root"
    mount -t proc proc "$root/proc"
    # Settings of the kernel are those of this machine too, and systemd would raise fs.file-max.
    mount --bind "$root/proc/sys" "$root/proc/sys"
    mount -o remount,bind,ro "$root/proc/sys"
    mount --rbind /sys "$root/sys"
    umount -R "$root/sys/fs/cgroup"
    mount -t cgroup2 none "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount -t tmpfs -o mode=755 tmpfs "$root/dev"
    for node in null zero full random urandom tty; do
        touch "$root/dev/$node"
        mount --bind "/dev/$node" "$root/dev/$node"
    done
    ln -s /proc/self/fd "$root/dev/fd"
    mkdir "$root/dev/shm" "$root/checks" "$root/old"
    mount --bind "$folder" "$root/checks"
    # Small images leave out manual pages and hold services back.
    rm -f "$root"/etc/dpkg/dpkg.cfg.d/* "$root/usr/sbin/policy-rc.d"
    cat > "$root/etc/systemd/system/checks.service" <<END
[Unit]
DefaultDependencies=no
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
TimeoutStartSec=240
StandardOutput=file:/checks/log
StandardError=file:/checks/log
ExecStart=/bin/bash /checks/checks.sh
END
    ip link set lo up
    cd "$root"
    pivot_root . old
    exec >/checks/console 2>&1 </dev/null
    exec chroot . /bin/sh -c 'umount -l /old
        exec env -i container=weir PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
            /lib/systemd/systemd --unit=checks.service --log-target=console --show-status=0'
    ;;
esac
