//! Why a line has no counterpart, and what is near.

use super::syntax::Line;
use crate::note::Note;

/// Where a line stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    Global,
    Defaults,
    Frontend,
    Backend,
}

/// Beginnings of lines that are read where they hold, or whose effect Weir has anyway.
const READ: &[&str] = &[
    "mode",
    "maxconn",
    "timeout client",
    "timeout server",
    "timeout connect",
    "timeout queue",
    "timeout http-request",
    "timeout http-keep-alive",
    "timeout tunnel",
    "timeout check",
    "option forwardfor",
    "option httpchk",
    "option http-keep-alive",
    "option http-server-close",
    "option redispatch",
    "option tcp-check",
    "option abortonclose",
    "option http-buffer-request",
    "option http-use-htx",
    "default-server",
    "retries",
    "retry-on",
    "balance",
    "no ",
];
const READ_IN_FRONTEND: &[&str] = &[
    "bind",
    "acl",
    "use_backend",
    "default_backend",
    "redirect",
    "http-request",
    "http-response",
    "tcp-request inspect-delay",
    "tcp-request content accept",
    "backlog",
];
const READ_IN_BACKEND: &[&str] =
    &["server", "http-check", "http-request", "http-response", "acl", "hash-type", "cookie", "fullconn"];

/// Beginnings of lines; the reason; the nearest thing.
const REASONS: &[(&[&str], &str, &str)] = &[
    (
        &[
            "log",
            "option httplog",
            "option tcplog",
            "option dontlognull",
            "option dontlog-normal",
            "option logasap",
            "log-format",
            "error-log-format",
            "log-tag",
            "unique-id-format",
            "unique-id-header",
            "capture",
            "option log-",
        ],
        "the access log has fields of its own",
        "[telemetry.access_log]",
    ),
    (
        &[
            "user",
            "group",
            "uid",
            "gid",
            "chroot",
            "daemon",
            "pidfile",
            "master-worker",
            "setenv",
            "presetenv",
            "nbproc",
            "cpu-map",
            "ulimit-n",
            "node",
            "description",
            "localpeer",
            "hard-stop-after",
            "grace",
            "zero-warning",
            "insecure-fork-wanted",
            "quiet",
            "strict-limits",
            "set-dumpable",
        ],
        "the service manager or the drain controls this",
        "examples/weir.service, [drain]",
    ),
    (&["stats"], "figures are served by the admin server", "[admin], /metrics, weir top"),
    (
        &["tune.", "spread-checks", "noepoll", "nopoll", "maxpipes", "busy-polling", "profiling"],
        "tunes HAProxy itself",
        "",
    ),
    (
        &[
            "ssl-default-bind-",
            "ssl-default-server-",
            "ssl-dh-param-file",
            "ssl-server-verify",
            "ca-base",
            "crt-base",
            "issuers-chain-path",
            "ssl-mode-async",
            "ssl-load-extra-files",
            "ssl-engine",
        ],
        "TLS 1.2 and 1.3 are served with the ciphers of rustls",
        "[listener.tls]",
    ),
    (&["lua-"], "there are no scripts", ""),
    (
        &["errorfile", "errorloc", "errorfiles", "http-error"],
        "responses of the gateway's own have a text of their own",
        "[route.response]",
    ),
    (
        &[
            "option httpclose",
            "option forceclose",
            "option http-tunnel",
            "option prefer-last-server",
            "http-reuse",
            "option http-no-delay",
            "option tcp-smart-",
            "option socket-stats",
            "option clitcpka",
            "option srvtcpka",
            "option tcpka",
            "option splice-",
            "option contstats",
            "option nolinger",
            "option http-pretend-keepalive",
            "option accept-invalid-http-",
        ],
        "connections are kept and shared by rules of their own",
        "keep_alive_timeout, [upstream.http]",
    ),
    (
        &[
            "option originalto",
            "option http-ignore-probes",
            "option checkcache",
            "option http-restrict-req-hdr-names",
            "option h1-case-adjust-",
        ],
        "has no counterpart",
        "",
    ),
    (
        &[
            "option allbackups",
            "option persist",
            "option external-check",
            "option ssl-hello-chk",
            "option mysql-check",
            "option pgsql-check",
            "option redis-check",
            "option smtpchk",
            "option ldap-check",
            "option spop-check",
            "external-check",
            "tcp-check",
        ],
        "a check connects, or requests a path",
        "[upstream.health], health_path",
    ),
    (
        &["stick", "stick-table", "http-request track-sc", "tcp-request connection track-sc"],
        "requests are counted by address, header or user",
        "[[listener.http.rate_limit]]",
    ),
    (&["http-request auth"], "the users are in a file", "[route.basic_auth]"),
    (&["http-request cache-use", "http-response cache-store"], "responses are not cached", ""),
    (&["compression", "filter compression"], "bodies may be compressed", "[listener.http.compression]"),
    (&["filter"], "there are no filters", ""),
    (
        &["tcp-request", "tcp-response"],
        "connections are not judged by rules",
        "connections_per_source_max, proxy_trusted",
    ),
    (&["rate-limit"], "new connections have no rate", "[[listener.http.rate_limit]]"),
    (&["monitor-uri", "monitor"], "health is shown by the admin server", "/readyz, or a [[route]] with a response"),
    (&["use-server"], "one of several servers is chosen by balance", "an upstream of its own"),
    (
        &[
            "dispatch",
            "source",
            "id",
            "disabled",
            "enabled",
            "timeout client-fin",
            "timeout server-fin",
            "timeout tarpit",
            "load-server-state-from-file",
            "server-state-",
            "email-alert",
            "max-keep-alive-queue",
            "declare",
            "force-persist",
            "ignore-persist",
            "guid",
        ],
        "has no counterpart",
        "",
    ),
    (&["server-template"], "servers are named one by one", "endpoints"),
    (
        &["option forwardfor"],
        "the field is X-Forwarded-For, and it is added for all clients",
        "listener.http.forwarded",
    ),
    (&["http-send-name-header"], "servers do not receive their name", ""),
];

/// The note on a line of this context; `None`: it is read elsewhere, or Weir does so anyway.
pub(super) fn note(line: &Line, context: Context) -> Option<Note> {
    let text = line.text();
    let lists: &[&[&str]] = match context {
        Context::Global => &[],
        Context::Defaults => &[READ],
        Context::Frontend => &[READ, READ_IN_FRONTEND],
        Context::Backend => &[READ, READ_IN_BACKEND],
    };
    let is_plain = !begins(&text, "option forwardfor") || line.words.len() == 2;
    if is_plain && lists.iter().any(|list| list.iter().any(|words| begins(&text, words))) {
        return None;
    }
    Some(reason(line))
}

/// The note on a line, whatever reads others like it.
pub(super) fn reason(line: &Line) -> Note {
    let text = line.text();
    let found = REASONS.iter().find(|(names, ..)| names.iter().any(|words| begins(&text, words)));
    let (why, nearest) = found.map_or(("has no counterpart", ""), |(_, why, nearest)| (*why, *nearest));
    line.note(why, nearest)
}

/// Whether a line begins with these whole words; with `-`, `.` or a space at the end: with this text.
fn begins(text: &str, words: &str) -> bool {
    let Some(rest) = text.strip_prefix(words) else { return false };
    words.ends_with(['-', '.', ' ']) || rest.is_empty() || rest.starts_with(' ') || words.ends_with("-sc")
}
