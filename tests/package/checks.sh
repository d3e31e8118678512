#!/bin/bash
# What must hold of the Debian package, on the throw-away machine of machine.sh, where systemd is process 1. Prints TAP.
# Its own files are in its folder: systemd empties /tmp when the first service wants a whole system.
set -u
cd /checks || exit 1

passed=0
failed=0
unit=weir.service

# check NAME COMMAND...: one test; a failure shows what the command printed.
check() {
    local name=$1
    shift
    if "$@" >printed 2>&1; then
        passed=$((passed + 1))
        echo "ok $((passed + failed)) - $name"
    else
        failed=$((failed + 1))
        echo "not ok $((passed + failed)) - $name"
        sed 's/^/#   /' printed
    fi
}

# within SECONDS COMMAND...: until it holds.
within() {
    local deadline=$((SECONDS + $1))
    shift
    local printed
    until printed=$("$@" 2>&1); do
        if ((SECONDS > deadline)); then
            echo "it did not come to hold: $*: $printed"
            return 1
        fi
        sleep 0.1
    done
}

is() {
    [[ $1 == "$2" ]] || { echo "it is '$1' and should be '$2'"; return 1; }
}

silent() {
    local printed
    printed=$("$@" 2>&1) || { echo "$printed"; return 1; }
    is "$printed" ""
}

main_pid() { systemctl show --property MainPID --value $unit; }
version_of() { dpkg-deb --field "$1" Version; }
is_active() { systemctl is-active --quiet $unit; }
is_gone() { ! systemctl is-active --quiet $unit; }
get() { curl --silent --show-error --fail --max-time 5 "http://127.0.0.1:9900$1"; }
says() { get "$1" | grep -F -- "$2"; }

# === installation ===

find /etc /usr /var -path '*weir*' | LC_ALL=C sort >before
redis-server --port 6379 --save '' --daemonize yes >/dev/null

# The value that is there, so that a mistake does no harm.
is_fixed() { ! cat /proc/sys/fs/file-max >/proc/sys/fs/file-max; }
check "settings of the kernel are out of reach of this machine" is_fixed
check "the package can be installed" dpkg --install one.deb
check "it recommends the authorities that upstreams with TLS are verified by" is "$(dpkg-deb --field one.deb Recommends)" ca-certificates
check "systemd runs the service" within 30 is_active
check "the alert rules are among the examples" test -s /usr/share/doc/weir/examples/prometheus/weir.rules.yml
check "the service is enabled" systemctl is-enabled $unit
# It reads the units beside it too; those of other packages on this machine may be outdated.
verify() {
    systemd-analyze verify --recursive-errors=no /usr/lib/systemd/system/$unit >verified 2>&1 || { cat verified; return 1; }
    ! grep -v "^/[^:]*/system/[^:]*:" verified && ! grep -F "/$unit:" verified
}
check "systemd finds no fault in the unit" verify
check "the process belongs to the user of the package" is "$(stat -c %U "/proc/$(main_pid)")" weir
check "folders of the service are its own" is "$(stat -c '%n %U:%G %a' /var/log/weir /var/lib/weir)" \
    "/var/log/weir weir:weir 750"$'\n'"/var/lib/weir weir:weir 750"
check "the program says version and commit" bash -c "weir --version | grep -E '^weir [0-9.]+ \(commit [0-9a-z]+\)$'"
check "the API says the same commit" says /api/v1/version \
    "\"commit\":\"$(weir --version | sed -n 's/.*commit \(.*\))/\1/p')\""
check "the program has no symbols" bash -c "! readelf --sections --wide /usr/bin/weir | grep -E ' \.(symtab|debug_info)'"
check "each library of the program belongs to a package it depends on" bash -c '
    for library in $(ldd /usr/bin/weir | sed -n "s/.*=> \([^ ]*\) .*/\1/p"); do
        owner=$(dpkg --search "*/$(basename "$library")" | cut -d: -f1 | sort -u | grep -E "^(libc6|libgcc-s1)$") &&
            dpkg-query --show --showformat "\${Depends}" weir | grep -F "$owner" || exit 1
    done'
check "checksums of the files hold" silent dpkg --verify weir
check "a request goes through to the server" is "$(redis-cli -p 6380 set a b)$(redis-cli -p 6379 get a)" OKb
check "weir top shows the service" bash -c 'weir top --once | grep READY'

# === what belongs to the command line ===

check "the manual has a page of each subcommand" bash -c '
    for command in "" -run -check -top -upgrade -lab -lab-load -lab-origin-redis; do
        man --where "weir$command" || exit 1
    done'
check "the manual pages have no mistakes" bash -c '
    for page in /usr/share/man/man1/weir*.gz; do
        said=$(man --warnings=w --encoding=UTF-8 --local-file "$page" 2>&1 >/dev/null) && [[ -z $said ]] ||
            { echo "$page: $said"; exit 1; }
    done'
check "bash completes" bash -c '
    source /usr/share/bash-completion/completions/weir && COMP_WORDS=(weir upg) COMP_CWORD=1 && _weir weir upg weir &&
        [[ ${COMPREPLY[*]} == upgrade ]]'
check "zsh completes" zsh -f -c '
    autoload -Uz compinit && compinit -u -d /tmp/zcompdump && [[ ${_comps[weir]} == _weir ]] && zsh -n /usr/share/zsh/vendor-completions/_weir'
check "fish completes" bash -c "fish --no-config --command '
    source /usr/share/fish/vendor_completions.d/weir.fish; complete --do-complete \"weir upg\"' | grep '^upgrade'"

# === the unit ===

cat >>/etc/weir/weir.toml <<'END'

[[listener]]
name = "low-port"
protocol = "redis"
bind = "127.0.0.1:80"
upstream = "redis-main"

[telemetry.access_log]
target = "file:/var/log/weir/access.log"
sample = 1.0
END
# More often than the start limit of systemd allows within ten seconds, were each start to fail.
crash() {
    local before
    before=$(main_pid)
    systemctl kill --signal=KILL --kill-who=main $unit
    restarted() { is_active && [[ $(main_pid) != "$before" ]]; }
    within 20 restarted
}
check "the service starts again after a crash" crash
check "and after another one" crash
check "no start of it has failed" is "$(systemctl show --property NRestarts --value $unit)" 2
check "the service stops" systemctl stop $unit
check "the configuration is good" weir check /etc/weir/weir.toml
check "the service starts" systemctl start $unit
check "it may bind a port below 1024" is "$(redis-cli -p 80 ping)" PONG
# The service has a capability, so the kernel hides it from a process of the same user without one.
beside() { runuser --user weir -- weir check /etc/weir/weir.toml 2>&1 | tee beside; is "${PIPESTATUS[0]}" 0 && grep "may not see" beside; }
check "its user may check the configuration while it runs" beside
logged() { grep -q . "/var/log/weir/$1"; }
check "it may write its access log" within 10 logged access.log
check "logrotate moves the log away" logrotate --force /etc/logrotate.d/weir
redis-cli -p 6380 get a >/dev/null
again() { redis-cli -p 6380 get a >/dev/null && logged access.log; }
check "the log begins again" within 10 again
check "the moved log is kept" logged access.log.1
generation() { says /api/v1/version '"generation":2'; }
sed -i 's/6380/6381/' /etc/weir/weir.toml
check "systemctl reload is taken" systemctl reload $unit
check "a reload takes effect" within 10 generation
check "the new address serves" is "$(redis-cli -p 6381 ping)" PONG

# === upgrade, removal ===

exec 5<>/dev/tcp/127.0.0.1/6381
ask() { printf 'GET a\r\n' >&5 && read -r -t 10 -u 5 size && read -r -t 10 -u 5 value && is "$size$value" $'$1\rb\r'; }
check "a client is connected" ask
old=$(main_pid)
upgraded() { dpkg --install --force-confold two.deb | tee upgraded && grep -F "$1" upgraded; }
sed -i '1i nonsense' /etc/weir/weir.toml
check "an upgrade that fails is called failed" upgraded "has not upgraded itself, and serves on"
sed -i 1d /etc/weir/weir.toml
check "the old process serves on" is "$(main_pid)" "$old"
check "the package can be upgraded while it runs" upgraded "has upgraded itself"
replaced() { [[ $(main_pid) != "$old" && ! -d /proc/$old ]] && is_active; }
check "another process serves" within 60 replaced
check "the connection has moved to it" ask
check "it says that it comes from an upgrade" says /api/v1/version '"restart_epoch":1'
check "the new process is the new file" is "$(readlink "/proc/$(main_pid)/exe")" /usr/bin/weir
check "the version of the package is the new one" is "$(dpkg-query --show --showformat '${Version}' weir)" "$(version_of two.deb)"
check "the changed configuration is kept" grep low-port /etc/weir/weir.toml
exec 5>&-
check "the service restarts" systemctl restart $unit
check "and serves" is "$(redis-cli -p 6381 ping)" PONG

check "the package can be removed" dpkg --remove weir
check "the service has stopped" within 30 is_gone
check "the program is gone" test ! -e /usr/bin/weir
check "configuration and logs are kept" test -f /etc/weir/weir.toml -a -f /var/log/weir/access.log.1
check "the package can be installed again" dpkg --install one.deb
check "and serves again" within 30 is_active
check "the package can be purged" dpkg --purge weir
check "nothing of it is left" bash -c "find /etc /usr /var -path '*weir*' | LC_ALL=C sort | diff before -"
check "its user is gone" bash -c '! getent passwd weir && ! getent group weir'

# === the container ===

# Process 1 of a container is `init`. It has the program from the package, without its service.
dpkg-deb --fsys-tarfile one.deb | tar --extract --directory /tmp ./usr/bin/weir ./etc/weir
container() {
    exec env PATH="/tmp/usr/bin:$PATH" unshare --pid --fork --kill-child=KILL --mount-proc \
        /checks/init run --config /tmp/etc/weir/weir.toml
}
container >/tmp/container.log 2>&1 &
outer=$!
check "the container serves" within 30 says /api/v1/version '"restart_epoch":0'
exec 5<>/dev/tcp/127.0.0.1/6380
check "a client is connected to it" ask
inner=$(pgrep --parent $outer)
first=$(pgrep --parent "$inner" weir)
signal() { kill -"$1" "$inner"; }
check "its process 1 passes SIGUSR2 on" signal USR2
check "another process serves in the container" within 30 says /api/v1/version '"restart_epoch":1'
has_ended() { ! kill -0 "$first" 2>/dev/null; }
check "the first process ends" within 60 has_ended
sleep 2
check "the container outlives it, and the connection too" ask
exec 5>&-
check "its health check holds" env PATH="/tmp/usr/bin:$PATH" weir top --once
check "its process 1 passes SIGTERM on" signal TERM
container_ended() { ! kill -0 $outer 2>/dev/null; }
check "the container ends" within 60 container_ended
container_status=0
wait $outer || container_status=$?
check "with status 0" is $container_status 0

container >/tmp/container.log 2>&1 &
outer=$!
check "the container starts again" within 30 says /api/v1/version '"restart_epoch":0'
inner=$(pgrep --parent $outer)
first=$(pgrep --parent "$inner" weir)
check "it upgrades itself" signal USR2
check "the next process serves" within 30 says /api/v1/version '"restart_epoch":1'
check "the one before it ends" within 60 has_ended
leaves() { nsenter --target "$inner" --pid --mount sh -c 'sleep 600 >/dev/null 2>&1 &'; }
check "another process is left behind in the container" leaves
crashes() { kill -KILL "$(pgrep --parent "$inner" weir)"; }
check "the next process crashes" crashes
check "the container ends with it" within 10 container_ended
container_status=0
wait $outer || container_status=$?
check "and with its status" is $container_status 137

# Slow enough for a signal before there is a process to pass it to.
sed 's/^my $first = fork;/sleep 2;\n&/' init >/tmp/slow-init
chmod +x /tmp/slow-init
check "a slow process 1 is not that of the package" is "$(diff init /tmp/slow-init | grep --count '^>')" 1
env PATH="/tmp/usr/bin:$PATH" unshare --pid --fork --kill-child=KILL --mount-proc \
    /tmp/slow-init run --config /tmp/etc/weir/weir.toml >/tmp/container.log 2>&1 &
outer=$!
waits() { inner=$(pgrep --parent $outer) && grep '^SigBlk:.*4803$' "/proc/$inner/status"; }
check "signals wait for its first process" within 10 waits
inner=$(pgrep --parent $outer)
check "a container is stopped at its start" signal TERM
check "the signal is not lost" within 10 container_ended

echo "# pass $passed"
echo "# fail $failed"
((failed == 0))
