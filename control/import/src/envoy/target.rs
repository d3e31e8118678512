//! Where the requests of a route go: to an upstream, elsewhere by a redirect, or nowhere, for the gateway itself responds.

use super::Importer;
use super::headers::append_action;
use super::route::Levels;
use crate::model::{PathMatch, Route, Target};
use crate::note::{Mistake, Note};
use crate::toml::Value;
use crate::yaml::Node;

/// Bytes of the body of a response of Weir itself, and of Envoy's unless its file says otherwise.
const BODY_BYTES_MAX: usize = 4096;

/// The type of a body of Envoy's own.
const BODY_TYPE: &str = "text/plain";

impl<'n> Importer<'n> {
    pub(super) fn target(&mut self, levels: Levels<'n>, notes: &mut Vec<Note>) -> Result<Target, Mistake> {
        let node = levels[0];
        if let Some(redirect) = node.get("redirect") {
            return self.redirect(redirect, notes);
        }
        if let Some(response) = node.get("direct_response") {
            return self.direct_response(response, levels, notes);
        }
        let Some(action) = node.get("route") else {
            return Err(Mistake::new(&node.place, "a route needs one of route, redirect and direct_response"));
        };
        if let Some(cluster) = action.get("cluster") {
            return Ok(Target::Upstream(self.cluster(cluster.text(), "http", cluster)?));
        }
        let mut shares = Vec::new();
        if let Some(weighted) = action.get("weighted_clusters") {
            self.rest(weighted, &["clusters", "total_weight"], "weighted_clusters");
        }
        for share in action.items_at("weighted_clusters.clusters") {
            self.rest(share, &["weight"], "weighted_clusters.clusters");
            let Some(name) = share.get("name") else { return Err(Mistake::new(&share.place, "a share needs a name")) };
            let weight = share.get("weight").map_or(Ok(0), |node| node.number("weight"))?;
            shares.push((self.cluster(name.text(), "http", name)?, weight.min(1_000_000)));
        }
        match shares.is_empty() {
            false => Ok(Target::Split(shares)),
            true => {
                let why = "the request cannot select the upstream; the route responds with 501";
                notes.push(Note::new(&action.place, "cluster_header", why, "conditions of a [[route]]"));
                Ok(Target::status(501))
            }
        }
    }

    /// A response of the gateway. The headers of a level may say the type of the body.
    fn direct_response(
        &mut self,
        response: &'n Node,
        levels: Levels<'n>,
        notes: &mut Vec<Note>,
    ) -> Result<Target, Mistake> {
        self.rest(response, &["status", "body"], "direct_response");
        let Some(status) = response.get("status") else {
            return Err(Mistake::new(&response.place, "direct_response needs a status"));
        };
        let mut keys = vec![("status".to_owned(), Value::Number(status.number("status")?))];
        match response.text_at("body.inline_string") {
            Some(body) if body.len() <= BODY_BYTES_MAX => {
                let kind = body_type(levels).unwrap_or(BODY_TYPE);
                keys.push(("body".to_owned(), Value::text(body)));
                keys.push(("content_type".to_owned(), Value::text(kind)));
            }
            None if response.get("body").is_none() => {}
            _ => notes.push(Note::new(
                &response.place,
                "direct_response.body",
                "is a text of up to 4 KiB; here it is empty",
                "[route.response] body",
            )),
        }
        Ok(Target::Response(keys))
    }

    fn redirect(&mut self, node: &'n Node, notes: &mut Vec<Note>) -> Result<Target, Mistake> {
        let read = [
            "https_redirect",
            "scheme_redirect",
            "host_redirect",
            "port_redirect",
            "path_redirect",
            "prefix_rewrite",
            "regex_rewrite",
            "response_code",
        ];
        self.rest(node, &read, "redirect");
        if let Some(rewrite) = node.get("regex_rewrite") {
            let why = "a redirect replaces a path or a prefix; the route responds with 501";
            notes.push(Note::new(&rewrite.place, "redirect.regex_rewrite", why, "[route.redirect] path_prefix"));
            return Ok(Target::status(501));
        }
        let status = match node.text_at("response_code") {
            None | Some("MOVED_PERMANENTLY") => 301,
            Some("FOUND") => 302,
            Some("SEE_OTHER") => 303,
            Some("TEMPORARY_REDIRECT") => 307,
            Some("PERMANENT_REDIRECT") => 308,
            Some(other) => {
                return Err(Mistake::new(&node.place, format!("`{other}` is no response_code of a redirect")));
            }
        };
        let mut keys = vec![("status".to_owned(), Value::Number(status))];
        keys.extend(self.address(node, notes)?);
        keys.extend(path(node, notes));
        match keys.len() {
            1 => Err(Mistake::new(&node.place, "the redirect leads to the request's own address")),
            _ => Ok(Target::Redirect(keys)),
        }
    }

    /// The scheme, the host and the port of a redirect. A host may have its port behind it.
    fn address(&self, node: &Node, notes: &mut Vec<Note>) -> Result<Vec<(String, Value)>, Mistake> {
        let is_https = node.get("https_redirect").is_some_and(Node::is_true);
        let own = self.arrival.scheme();
        let other = self.arrival.fixed_scheme().filter(|scheme| *scheme != own);
        // Without it, a Location of Weir has the scheme of the connection.
        let mut scheme = node.text_at("scheme_redirect").or(is_https.then_some("https")).or(other);
        let mut port = node.get("port_redirect").map(|port| port.number("port_redirect")).transpose()?;
        let host = node.text_at("host_redirect").map(|text| {
            let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
            port = port.or(parts.map(|(_, port)| u64::from(port)));
            parts.map_or(text, |(host, _)| host)
        });
        match (scheme, host, port) {
            // With its own port, a host does not get that of the request.
            (None, Some(_), None) => port = Some(if own == "https" { 443 } else { 80 }),
            // With a scheme, Weir leaves out the port of the request.
            (Some(to), None, None) if self.arrival.fixed_scheme() == Some(to) && to == own && has_path(node) => {
                scheme = None;
            }
            (Some(_), None, None) => {
                let key = match node.get("scheme_redirect") {
                    Some(_) => "scheme_redirect",
                    None if is_https => "https_redirect",
                    None => "redirect",
                };
                let why = "the Location has no port; Envoy keeps a port of the Host that the scheme does not imply";
                notes.push(Note::new(&node.place, key, why, "[route.redirect] port"));
            }
            _ => {}
        }
        if scheme.is_none() && self.arrival.fixed_scheme().is_none() {
            let why = "the Location has the scheme of the connection; Envoy has that of X-Forwarded-Proto";
            notes.push(Note::new(&node.place, "redirect", why, "[route.redirect] scheme"));
        }
        let mut keys = Vec::new();
        keys.extend(scheme.map(|scheme| ("scheme".to_owned(), Value::text(scheme))));
        keys.extend(host.map(|host| ("host".to_owned(), Value::text(host))));
        keys.extend(port.map(|port| ("port".to_owned(), Value::Number(port))));
        Ok(keys)
    }
}

/// A redirect that leads to another path.
fn has_path(node: &Node) -> bool {
    node.get("path_redirect").is_some() || node.get("prefix_rewrite").is_some()
}

/// The path of a redirect.
fn path(node: &Node, notes: &mut Vec<Note>) -> Option<(String, Value)> {
    if let Some(text) = node.text_at("prefix_rewrite") {
        return Some(("path_prefix".to_owned(), Value::text(text)));
    }
    let text = node.text_at("path_redirect")?;
    let path = match text.split_once('?') {
        None => text,
        Some((path, _)) => {
            let why = "a redirect keeps the query of the request, and has none of its own";
            notes.push(Note::new(&node.place, format!("path_redirect: {text}"), why, "[route.redirect] path"));
            path
        }
    };
    Some(("path".to_owned(), Value::text(path)))
}

/// The media type that the headers of `levels` say: the last one that replaces others, or else the first one.
fn body_type(mut levels: Levels<'_>) -> Option<&str> {
    if levels[2].get("most_specific_header_mutations_wins").is_some_and(Node::is_true) {
        levels.reverse();
    }
    let of_all = || levels.into_iter().flat_map(|level| level.items_at("response_headers_to_add"));
    let replaced =
        of_all().filter(|one| append_action(one).starts_with("OVERWRITE_")).filter_map(content_type).next_back();
    replaced.or_else(|| of_all().find_map(content_type))
}

/// The media type that one of `response_headers_to_add` sets.
pub(super) fn content_type(header: &Node) -> Option<&str> {
    let is_type = header.text_at("header.key").is_some_and(|key| key.eq_ignore_ascii_case("content-type"));
    header.text_at("header.value").filter(|value| is_type && !value.is_empty() && !value.contains('%'))
}

/// The replacement of a prefix by a redirect, where the path of the route is no prefix.
pub(super) fn place_prefix(route: &mut Route) {
    let Target::Redirect(keys) = &mut route.target else { return };
    let Some((key, _)) = keys.iter_mut().find(|(key, _)| key == "path_prefix") else { return };
    match route.path {
        // Envoy replaces all that the route matches, and a regex matches the whole path.
        PathMatch::Exact(_) | PathMatch::Regex(_) => "path".clone_into(key),
        PathMatch::Any => route.path = PathMatch::Prefix("/".to_owned()),
        PathMatch::Segments(_) | PathMatch::Prefix(_) => {}
    }
}
