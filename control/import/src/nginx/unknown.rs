//! Why a directive has no counterpart, and what is near.

use super::syntax::Directive;
use crate::note::Note;

/// Where a directive stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Context {
    Main,
    Http,
    Server,
    Location,
    Stream,
}

/// Directives whose effect Weir has anyway, or that are read where they hold: `http`, `server` and `location` inherit them.
const READ: &[&str] = &[
    "access_log",
    "add_header",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "client_body_timeout",
    "client_header_timeout",
    "client_max_body_size",
    "default_type",
    "deny",
    "grpc_connect_timeout",
    "grpc_ssl_certificate",
    "grpc_ssl_certificate_key",
    "grpc_ssl_name",
    "grpc_ssl_server_name",
    "grpc_ssl_trusted_certificate",
    "grpc_ssl_verify",
    "gzip",
    "gzip_min_length",
    "gzip_types",
    "http2",
    "keepalive_timeout",
    "limit_req",
    "limit_req_status",
    "proxy_connect_timeout",
    "proxy_http_version",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "proxy_read_timeout",
    "proxy_set_header",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "proxy_ssl_name",
    "proxy_ssl_server_name",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_verify",
    "set_real_ip_from",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_client_certificate",
    "ssl_protocols",
    "ssl_verify_client",
];

/// Further ones of a server and of a location.
const READ_IN_SERVER: &[&str] = &["if", "listen", "location", "return", "rewrite", "server_name", "ssl"];
const READ_IN_LOCATION: &[&str] = &["grpc_pass", "internal", "location", "proxy_pass", "return", "rewrite"];
const READ_IN_STREAM: &[&str] = &[
    "listen",
    "proxy_connect_timeout",
    "proxy_pass",
    "proxy_protocol",
    "proxy_ssl",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "proxy_ssl_name",
    "proxy_ssl_server_name",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_verify",
    "proxy_timeout",
    "server",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_preread",
    "upstream",
];

/// Names, or their beginnings with a star; the reason; the nearest thing.
const REASONS: &[(&[&str], &str, &str)] = &[
    (&["user", "pid", "daemon", "master_process"], "the service manager controls this", "examples/weir.service"),
    (&["error_log", "log_format", "open_log_file_cache"], "logs have a form of their own", "[telemetry]"),
    (&["load_module"], "there are no modules", ""),
    (&["worker_connections"], "connections of clients are bounded for the whole process", "limits.connections"),
    (&["worker_*", "thread_pool", "multi_accept", "use", "accept_mutex", "pcre_jit", "timer_resolution"], TUNING, ""),
    (&["sendfile*", "tcp_no*", "aio*", "directio*", "output_buffers", "postpone_output"], TUNING, ""),
    (&["*_hash_bucket_size", "*_hash_max_size", "reset_timedout_connection", "send_timeout"], TUNING, ""),
    (
        &["keepalive_requests", "keepalive_disable", "keepalive_time"],
        "connections are not ended after a count",
        "keep_alive_timeout",
    ),
    (&["large_client_header_buffers", "client_header_buffer_size"], "heads have a fixed limit", ""),
    (
        &["client_body_*", "client_body_buffer_size"],
        "bodies are held in memory, never in files",
        "request_buffer_bytes",
    ),
    (
        &["proxy_buffering", "proxy_buffer*", "proxy_*temp*", "proxy_busy_buffers_size"],
        "responses are streamed, never held in files",
        "",
    ),
    (&["proxy_request_buffering"], "a part of a request is held back", "request_buffer_bytes"),
    (&["proxy_send_timeout"], "the deadline for sending is fixed at 60 s", ""),
    (&["proxy_cache*", "open_file_cache*"], "responses are not cached", ""),
    (&["proxy_redirect"], "the Location header of responses is not changed", ""),
    (&["proxy_cookie_*"], "changes are made to a cookie by its name", "[[route.cookie]]"),
    (
        &["proxy_hide_header", "proxy_pass_header", "proxy_ignore_headers"],
        "headers of responses are changed by name",
        "[[route.response_header]] change = \"remove\"",
    ),
    (
        &["proxy_intercept_errors", "error_page", "recursive_error_pages"],
        "errors of origins go to the client as they are",
        "[route.response]",
    ),
    (&["proxy_next_upstream_timeout"], "each attempt has a time limit", "[route.retry] try_timeout"),
    (&["proxy_ssl_*", "grpc_ssl_*"], "TLS towards upstreams has fixed protocols and ciphers", "[upstream.tls]"),
    (&["proxy_*"], "the proxy module of nginx has more knobs than Weir", "[upstream.http]"),
    (&["grpc_*"], "the gRPC module of nginx has more knobs than Weir", "[upstream.http] version = \"2\""),
    (
        &["fastcgi_*", "uwsgi_*", "scgi_*", "memcached_*"],
        "origins speak HTTP",
        "an HTTP server in front of the application",
    ),
    (
        &[
            "root",
            "alias",
            "index",
            "try_files",
            "autoindex*",
            "expires",
            "etag",
            "if_modified_since",
            "types",
            "types_hash*",
            "charset*",
            "source_charset",
        ],
        FILES,
        "an origin that serves them",
    ),
    (
        &[
            "gzip_static",
            "gunzip",
            "sub_filter*",
            "ssi*",
            "image_filter*",
            "xslt_*",
            "addition_*",
            "mp4*",
            "flv",
            "random_index",
        ],
        "bodies are not changed",
        "",
    ),
    (
        &[
            "gzip_comp_level",
            "gzip_vary",
            "gzip_proxied",
            "gzip_disable",
            "gzip_buffers",
            "gzip_http_version",
            "brotli*",
        ],
        "compression has a level and rules of its own",
        "[listener.http.compression]",
    ),
    (
        &["ssl_ciphers", "ssl_prefer_server_ciphers", "ssl_ecdh_curve", "ssl_dhparam", "ssl_conf_command"],
        "ciphers are those of rustls: TLS 1.2 and 1.3, without weak ones",
        "",
    ),
    (&["ssl_session_*", "ssl_buffer_size", "ssl_early_data"], "sessions are resumed by tickets", ""),
    (&["ssl_stapling*"], "OCSP responses are not stapled", ""),
    (
        &["ssl_trusted_certificate", "ssl_verify_depth", "ssl_crl", "ssl_ocsp*", "ssl_password_file"],
        "TLS towards clients has fewer keys",
        "[listener.tls]",
    ),
    (&["ssl_reject_handshake"], "handshakes for other names succeed; routes see the host", "hosts of a [[route]]"),
    (&["limit_conn*"], "connections are bounded by listener and source", "connections_per_source_max"),
    (&["limit_rate*"], "bandwidth is not bounded", ""),
    (&["limit_req_dry_run", "limit_req_log_level"], "limits have no dry run", ""),
    (&["auth_request*"], "another service may decide", "[route.ext_auth]"),
    (&["auth_jwt*"], "tokens are checked by keys of their issuer", "[route.jwt]"),
    (&["satisfy"], "all policies of a route must allow a request", ""),
    (&["real_ip_header", "real_ip_recursive"], "proxies in front are counted", "listener.http.trusted_hops"),
    (&["mirror*"], "a share of the requests may be copied", "[route.mirror]"),
    (&["split_clients"], "a route may split its requests", "[[route.split]]"),
    (
        &["map", "geo", "set", "perl*", "js_*", "lua_*", "*_by_lua*", "userid*"],
        "there are no variables",
        "conditions of a [[route]]",
    ),
    (&["if"], "conditions are those of routes", "hosts, methods, header and query of a [[route]]"),
    (&["merge_slashes"], "is a key of the listener", "listener.http.path_merge_slashes"),
    (&["underscores_in_headers", "ignore_invalid_headers"], "names with underscores pass", ""),
    (
        &["server_tokens", "server_name_in_redirect", "port_in_redirect", "absolute_redirect", "msie_*"],
        "responses do not name a version",
        "",
    ),
    (&["resolver*"], "names are resolved by the system", ""),
    (&["stub_status", "status", "api"], "figures are served by the admin server", "/metrics, weir top"),
    (&["http3*", "quic*"], "HTTP/3 is not served", ""),
    (&["http2_*"], "HTTP/2 has a key for streams", "listener.http.http2_streams_max"),
    (&["lingering_*"], "connections linger as long as needed", ""),
];

const TUNING: &str = "tunes nginx itself";
const FILES: &str = "Weir serves no files";

/// The note on a directive of this context; `None`: it is read elsewhere, or Weir does so anyway.
pub(super) fn note(of: &Directive, context: Context) -> Option<Note> {
    let read: &[&[&str]] = match context {
        Context::Main => &[],
        Context::Http => &[READ],
        Context::Server => &[READ, READ_IN_SERVER],
        Context::Location => &[READ, READ_IN_LOCATION],
        Context::Stream => &[READ_IN_STREAM],
    };
    if read.iter().any(|list| list.contains(&of.name.as_str())) {
        return None;
    }
    let reason = REASONS.iter().find(|(names, ..)| names.iter().any(|name| is_called(&of.name, name)));
    let (why, nearest) = reason.map_or(("has no counterpart", ""), |(_, why, nearest)| (*why, *nearest));
    Some(Note::new(&of.place, of.text(), why, nearest))
}

fn is_called(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((front, back)) => {
            name.len() >= front.len() + back.trim_end_matches('*').len()
                && name.starts_with(front)
                && name.contains(back.trim_end_matches('*'))
        }
    }
}
