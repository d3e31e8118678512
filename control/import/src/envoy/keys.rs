//! Keys that nothing reads, each with a note.

use super::Importer;
use crate::note::Note;
use crate::yaml::Node;

/// Names, the reason, and the nearest thing.
const REASONS: &[(&[&str], &str, &str)] = &[
    (
        &["ring_hash_lb_config", "maglev_lb_config"],
        "rings and tables have Envoy's default size: with another one keys would be looked for on other servers",
        "upstream.sharding",
    ),
    (&["common_lb_config"], "another key sets the share of endpoints that must be healthy", "panic_percent"),
    (
        &["dynamic_resources", "cds_config", "lds_config", "rds", "eds_cluster_config", "hds_config"],
        "Weir reads a file and has no control plane",
        "a reload",
    ),
    (&["access_log"], "the whole process has one access log", "[telemetry.access_log]"),
    (
        &["tracing", "stats_sinks", "stats_config", "layered_runtime", "overload_manager"],
        "has no counterpart",
        "[telemetry]",
    ),
    (
        &["rate_limits", "rate_limit", "typed_per_filter_config"],
        "policies are tables of a route",
        "[[route.rate_limit]], [route.ip_filter], [route.jwt]",
    ),
    (&["hash_policy"], "the upstream selects the session affinity", "[upstream.http.affinity]"),
    (&["request_mirror_policies"], "a share of the requests may be copied", "[route.mirror]"),
    (&["cors"], "pages of other origins", "[route.cors]"),
    (
        &["internal_address_config"],
        "no client counts as internal, and x-envoy-internal is removed",
        "change = \"set\" of [[route.request_header]]",
    ),
    (&["skip_xff_append"], "the peer is appended to X-Forwarded-For", "listener.http.forwarded"),
    (
        &["set_current_client_cert_details"],
        "the parts are always hash, subject, DNS names and URIs",
        "listener.http.forwarded_client_cert",
    ),
    (&["internal_redirect_policy"], "redirects go to the client", ""),
    (&["upgrade_configs"], "WebSockets are a setting", "upgrades = [\"websocket\"]"),
    (
        &[
            "match_typed_subject_alt_names",
            "match_subject_alt_names",
            "verify_certificate_hash",
            "verify_certificate_spki",
            "crl",
        ],
        "every valid certificate of the authority is accepted; an upstream's certificate must also name the upstream",
        "[listener.tls] client_ca_file, [upstream.tls] server_name",
    ),
    (&["tls_params"], "TLS 1.2 and 1.3 are served with the ciphers of rustls", "[listener.tls]"),
    (
        &["source_prefix_ranges", "direct_source_prefix_ranges", "source_type", "source_ports"],
        "connections are not refused by their address here: all are served",
        "[listener.http.ip_filter]",
    ),
    (&["server_names"], "connections for all names are served", "hosts of a [[route]], [[listener.server_name]]"),
    (&["metadata", "decorator", "stat_name", "alt_stat_name"], "names for figures only", ""),
];

/// Keys that say what Weir does anyway, or that are only names.
const SILENT: &[&str] =
    &["stat_prefix", "name", "codec_type", "dns_lookup_family", "cluster_name", "@type", "type_url"];

impl Importer<'_> {
    pub(super) fn note(&mut self, node: &Node, directive: &str, why: &str, nearest: &str) {
        let note = Note::new(&node.place, directive, why, nearest);
        if !self.config.notes.contains(&note) {
            self.config.notes.push(note);
        }
    }

    /// Notes on the keys of a map that are not among those that were read.
    pub(super) fn rest(&mut self, node: &Node, read: &[&str], of: &str) {
        for (key, value) in node.entries() {
            let is_read = read.contains(&key.as_str()) || SILENT.contains(&key.as_str());
            if is_read {
                continue;
            }
            let found = REASONS.iter().find(|(names, ..)| names.contains(&key.as_str()));
            let (why, nearest) = found.map_or(("has no counterpart", ""), |(_, why, nearest)| (*why, *nearest));
            let directive = if of.is_empty() { key.clone() } else { format!("{of}.{key}") };
            self.note(value, &directive, why, nearest);
        }
    }
}
