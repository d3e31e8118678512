//! Keys without a counterpart, and keys that PgBouncer does not know.

use super::ini::{Entry, Ini};
use super::{amount, connect, limits};
use crate::note::{Mistake, Note};

/// Keys that other files of this folder read.
const READ_ELSEWHERE: [&str; 43] = [
    "admin_users",
    "auth_dbname",
    "auth_file",
    "auth_hba_file",
    "auth_query",
    "auth_type",
    "auth_user",
    "client_idle_timeout",
    "client_login_timeout",
    "client_tls_ca_file",
    "client_tls_cert_file",
    "client_tls_key_file",
    "client_tls_sslmode",
    "default_pool_size",
    "idle_transaction_timeout",
    "listen_addr",
    "listen_backlog",
    "listen_port",
    "max_client_conn",
    "max_db_connections",
    "max_user_connections",
    "min_pool_size",
    "pool_mode",
    "query_timeout",
    "query_wait_notify",
    "query_wait_timeout",
    "reserve_pool_size",
    "reserve_pool_timeout",
    "server_check_delay",
    "server_connect_timeout",
    "server_idle_timeout",
    "server_lifetime",
    "server_reset_query",
    "server_reset_query_always",
    "server_tls_ca_file",
    "server_tls_cert_file",
    "server_tls_key_file",
    "server_tls_sslmode",
    "stats_users",
    "unix_socket_dir",
    "unix_socket_mode",
    // Windows has these.
    "job_name",
    "service_name",
];

/// Switches whose `0` needs no note: key, why, nearest.
const SWITCHES: [(&str, &str, &str); 11] = [
    ("application_name_add_host", "the application name is the client's", "the access log"),
    ("disable_pqexec", "texts with several statements are not refused", "rights at the server"),
    ("log_connections", "the log has no line for a login", "GET /api/v1/connections, /metrics"),
    ("log_disconnections", "the log has no line for each disconnect", "GET /api/v1/connections, /metrics"),
    ("log_pooler_errors", "errors are counted", "/metrics, the access log"),
    ("log_stats", "the log has no figures", "SHOW STATS, /metrics"),
    ("server_fast_close", "a connection closes when its client leaves it", "drain"),
    ("server_round_robin", "the connection that was used last serves next", ""),
    ("so_reuseport", "one process has several workers", "runtime.workers, or reuse_port = true"),
    ("syslog", "the log goes to stderr", "the journal of systemd"),
    ("tcp_defer_accept", "connections are accepted at once", "client_login_timeout"),
];

/// Other keys: the value of PgBouncer that needs no note, why, nearest.
const OTHERS: [(&str, &str, &str, &str); 44] = [
    ("auth_ident_file", "", "there are no maps of names", ""),
    ("auth_ldap_options", "", "passwords are not checked by other programs", "[[listener.user]]"),
    (
        "autodb_idle_timeout",
        "3600",
        "pools of databases without clients go by server_idle_timeout",
        "server_idle_timeout",
    ),
    ("cancel_wait_timeout", "10", "a cancel waits for no server connection of a pool", ""),
    ("client_tls13_ciphers", "", "ciphers are chosen by the TLS library", ""),
    ("client_tls_ciphers", "fast", "ciphers are chosen by the TLS library", ""),
    ("client_tls_dheparams", "auto", "DHE is not offered", ""),
    ("client_tls_ecdhcurve", "auto", "curves are chosen by the TLS library", ""),
    ("client_tls_protocols", "secure", "TLS 1.2 and 1.3 are offered", ""),
    ("conffile", "", "the file is named on the command line", "weir run --config"),
    ("dns_max_ttl", "15", "a name is resolved at a connect if its last result is over 5 s old", ""),
    ("dns_nxdomain_ttl", "15", "after a failure, a connect uses the last good result, or resolves the name again", ""),
    ("dns_zone_check_period", "0", "a name is resolved at a connect if its last result is over 5 s old", ""),
    ("ignore_startup_parameters", "", "no parameter is refused or ignored: each is kept per client", ""),
    ("logfile", "", "the log goes to stderr", "the journal of systemd"),
    ("max_db_client_connections", "0", "clients are counted per listener, not per database", "connections_max"),
    ("max_packet_size", "2147483647", "large messages are passed on piece by piece", ""),
    ("max_prepared_statements", "", "prepared statements are always kept: 512 per client, 200 per server", ""),
    ("max_user_client_connections", "0", "clients are counted per listener, not per user", "connections_max"),
    ("peer_id", "0", "one process has several workers, which find each other's cancel requests", ""),
    ("pidfile", "", "there is no file with the process id", "the service manager"),
    ("pkt_buf", "4096", "buffers are Weir's own", ""),
    ("resolv_conf", "", "names are resolved as the system does", "/etc/resolv.conf"),
    ("sbuf_loopcnt", "5", "turns are Weir's own", ""),
    ("scram_iterations", "4096", "verifiers of plain passwords have 4,096 iterations", ""),
    ("server_check_query", "select 1", "the check of a connection is Weir's own", "server_check_delay"),
    ("server_login_retry", "15", "a login that failed is tried again after a pause that doubles", ""),
    ("server_tls13_ciphers", "", "ciphers are chosen by the TLS library", ""),
    ("server_tls_ciphers", "fast", "ciphers are chosen by the TLS library", ""),
    ("server_tls_protocols", "secure", "TLS 1.2 and 1.3 are offered", ""),
    ("stats_period", "60", "averages have a period of their own", "/metrics"),
    ("suspend_timeout", "10", "there is no SUSPEND", "weir upgrade"),
    ("syslog_facility", "daemon", "the log goes to stderr", "the journal of systemd"),
    ("syslog_ident", "pgbouncer", "the log goes to stderr", "the journal of systemd"),
    ("tcp_keepalive", "1", "keepalive is always on", ""),
    ("tcp_keepcnt", "0", "figures of keepalive are Weir's and the system's", "net.ipv4.tcp_keepalive_probes"),
    ("tcp_keepidle", "0", "figures of keepalive are Weir's and the system's", "net.ipv4.tcp_keepalive_time"),
    ("tcp_keepintvl", "0", "figures of keepalive are Weir's and the system's", "net.ipv4.tcp_keepalive_intvl"),
    ("tcp_socket_buffer", "0", "buffers of sockets are the system's", "net.ipv4.tcp_rmem, tcp_wmem"),
    ("tcp_user_timeout", "0", "the system decides about lost connections", "net.ipv4.tcp_retries2"),
    ("track_extra_parameters", "IntervalStyle", "every parameter is kept per client", ""),
    ("transaction_timeout", "0", "transactions have no limit of their own", "query_timeout, idle_transaction_timeout"),
    ("unix_socket_group", "", "the socket belongs to the process's group", "the service manager's Group="),
    ("user", "", "the process does not change its user", "the service manager's User="),
];

/// Notes on keys, users and peers.
///
/// # Errors
/// A key that PgBouncer does not know, or a value that it does not take.
pub(super) fn notes(ini: &Ini, notes: &mut Vec<Note>) -> Result<(), Mistake> {
    for entry in &ini.pgbouncer {
        notes.extend(key(entry)?);
    }
    for entry in &ini.users {
        user(entry, notes)?;
    }
    for entry in &ini.peers {
        let why = "one process has several workers, which find each other's cancel requests; there are no peers";
        notes.push(Note::new(&entry.place, format!("{} = ...", entry.key), why, "runtime.workers"));
    }
    Ok(())
}

fn key(entry: &Entry) -> Result<Option<Note>, Mistake> {
    let key = entry.key.as_str();
    let note = |why: &str, nearest: &str| Some(Note::new(&entry.place, entry.text(), why, nearest));
    if READ_ELSEWHERE.contains(&key) {
        return Ok(None);
    }
    if let Some((_, why, nearest)) = SWITCHES.iter().find(|(known, _, _)| *known == key) {
        return Ok(amount::is_on(entry)?.then(|| note(why, nearest)).flatten());
    }
    if let Some((_, usual, why, nearest)) = OTHERS.iter().find(|(known, ..)| *known == key) {
        return Ok(if entry.value == *usual { None } else { note(why, nearest) });
    }
    Err(Mistake::new(&entry.place, format!("`{key}` is no key of [pgbouncer]")))
}

/// An entry of `[users]`: nothing of it has a counterpart.
fn user(entry: &Entry, notes: &mut Vec<Note>) -> Result<(), Mistake> {
    let wrong = |why: &str| Mistake::new(&entry.place, format!("the settings of the user `{}`: {why}", entry.key));
    for (key, value) in connect::pairs(&entry.value).map_err(wrong)? {
        let (why, nearest) = match key {
            "pool_mode" if limits::pool_mode(&value).is_none() => return Err(wrong("the mode is not known")),
            "pool_mode" => ("a listener has one pool mode for all its users", "a [[listener]] of its own"),
            "max_user_connections" => {
                ("all users of an upstream have one limit", "max_user_connections of [upstream.postgres]")
            }
            "pool_size" | "reserve_pool_size" => {
                ("all users of an upstream have one limit", "pool_size of [upstream.postgres]")
            }
            "max_user_client_connections" => ("clients are counted per listener, not per user", "connections_max"),
            "query_timeout" | "idle_transaction_timeout" | "client_idle_timeout" | "transaction_timeout" => {
                ("a listener has one value for all its users", "a [[listener]] of its own")
            }
            _ => return Err(wrong("there is a setting that PgBouncer does not know")),
        };
        notes.push(Note::new(&entry.place, format!("{} = {key}={value}", entry.key), why, nearest));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_stands_in_one_list() {
        let keys = READ_ELSEWHERE.iter().chain(SWITCHES.iter().map(|(key, ..)| key));
        let mut all: Vec<&str> = keys.chain(OTHERS.iter().map(|(key, ..)| key)).copied().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
