//! Symbols summed up: the crate in user space, the subsystem in the kernel.

use std::collections::BTreeMap;

use super::symbols::Symbol;

/// Kernel subsystems by how their functions begin (leading underscores left out). First match counts.
const SUBSYSTEMS: &[(&str, &[&str])] = &[
    ("kernel: io_uring", &["io_", "req_"]),
    ("kernel: epoll", &["ep_", "epoll", "do_epoll", "eventpoll"]),
    ("kernel: copying", &["copy_", "rep_movs", "memcpy", "memmove", "memset", "check_object", "simple_copy", "csum_"]),
    (
        "kernel: scheduling and wake-ups",
        &[
            "sched",
            "schedule",
            "pick_",
            "enqueue_task",
            "enqueue_entity",
            "dequeue_",
            "update_",
            "try_to_wake",
            "ttwu",
            "wake_",
            "select_task",
            "finish_task",
            "psi_",
            "set_next",
            "put_prev",
            "switch_",
            "place_entity",
            "futex",
            "task_",
            "native_queued",
            "default_wake",
            "autoremove_wake",
            "rcu_",
            "hrtimer",
            "tick_",
            "cpuacct",
            "prepare_task",
        ],
    ),
    (
        "kernel: network",
        &[
            "tcp_",
            "inet_",
            "ip_",
            "net_",
            "netif_",
            "sk_",
            "sock_",
            "skb_",
            "dev_",
            "loopback_",
            "napi_",
            "nf_",
            "process_backlog",
            "eth_",
            "alloc_skb",
            "kfree_skb",
            "consume_skb",
            "release_sock",
            "lock_sock",
            "security_socket",
            "send",
            "recv",
            "sys_send",
            "sys_recv",
            "import_",
            "validate_xmit",
            "qdisc",
            "neigh_",
            "ipv4_",
            "bictcp",
            "cubic",
            "raw_v4",
            "packet_",
            "fib_",
            "dst_",
            "ktime_get",
            "local_bh",
            "do_softirq",
            "handle_softirq",
            "mod_timer",
            "timer_",
        ],
    ),
    (
        "kernel: memory",
        &[
            "kmem_",
            "slab_",
            "kfree",
            "kmalloc",
            "page_",
            "alloc_",
            "free_",
            "get_page",
            "mm_",
            "kmalloc_reserve",
            "obj_cgroup",
            "memcg_",
            "mod_memcg",
            "refill_",
            "put_cpu",
            "get_partial",
        ],
    ),
    (
        "kernel: entry and exit of system calls",
        &[
            "entry_",
            "syscall_",
            "do_syscall",
            "x64_sys",
            "exit_to_user",
            "x86_",
            "fdget",
            "fput",
            "sys_",
            "srso_",
            "arch_exit",
            "fpregs",
            "get_random",
            "audit",
        ],
    ),
    (
        "kernel: locks, and what ran with interrupts off",
        &["raw_spin", "raw_read", "raw_write", "mutex_", "spin_", "osq_", "queued_"],
    ),
];

/// Sums by group, largest first.
pub(crate) fn sums(symbols: &[Symbol]) -> Vec<(String, f64)> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for symbol in symbols {
        *sums.entry(group(symbol)).or_default() += symbol.percent;
    }
    let mut sums: Vec<(String, f64)> = sums.into_iter().filter(|(_, percent)| *percent >= 0.05).collect();
    sums.sort_by(|one, other| other.1.total_cmp(&one.1));
    sums
}

fn group(symbol: &Symbol) -> String {
    if symbol.is_kernel {
        let name = symbol.name.trim_start_matches('_');
        let found = SUBSYSTEMS.iter().find(|(_, starts)| starts.iter().any(|start| name.starts_with(start)));
        return found.map_or("kernel: other", |(subsystem, _)| subsystem).to_owned();
    }
    match crate_of(&symbol.name) {
        Some(name) => format!("user: {name}"),
        None => format!("user: {}", symbol.object),
    }
}

/// `weir_redis` of `<weir_redis::Session as core::..>::poll` and of `weir_redis::run`.
fn crate_of(name: &str) -> Option<&str> {
    let start = name.trim_start_matches(['<', '&', '*', '(', '[']);
    let start = start.trim_start_matches("dyn ").trim_start_matches("mut ");
    let (first, _) = start.split_once("::")?;
    let is_name = !first.is_empty() && first.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, is_kernel: bool) -> Symbol {
        Symbol { percent: 10.0, is_kernel, name: name.into(), object: "libc.so.6".into() }
    }

    #[test]
    fn symbols_find_their_group() {
        assert_eq!(group(&symbol("__tcp_transmit_skb", true)), "kernel: network");
        assert_eq!(group(&symbol("io_recv", true)), "kernel: io_uring");
        assert_eq!(group(&symbol("zzz", true)), "kernel: other");
        assert_eq!(group(&symbol("<weir_redis::Session as core::future::Future>::poll", false)), "user: weir_redis");
        assert_eq!(group(&symbol("__memmove_avx_unaligned_erms", false)), "user: libc.so.6");
    }

    #[test]
    fn groups_are_summed() {
        let symbols = [symbol("tcp_ack", true), symbol("tcp_push", true), symbol("io_recv", true)];
        assert_eq!(sums(&symbols), [("kernel: network".to_owned(), 20.0), ("kernel: io_uring".to_owned(), 10.0)]);
    }
}
