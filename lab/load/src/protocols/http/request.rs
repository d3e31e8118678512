//! `[request]`: what HTTP and WebSocket ask for.

use crate::scenario::Request;
use crate::scenario::table::{Node, Table};

/// Bytes of a path or a host. Default 4 KiB and 255: what every server takes, and what a name may have.
const PATH_BYTES_MAX: usize = 4 * 1024;
const HOST_BYTES_MAX: usize = 255;

/// The default host: a reserved name that no one can register (RFC 2606).
const HOST: &str = "lab.example";

/// The section, or its defaults.
pub(super) fn read(table: Table<'_>) -> Option<Request> {
    let path = match table.get("path") {
        Some(node) => path(&node).map(Some),
        None => Some(None),
    };
    let host = match table.get("host") {
        Some(node) => host(&node),
        None => Some(HOST.to_owned()),
    };
    table.finish();
    Some(Request { has_any_length: false, path: path?, host: host? })
}

/// Visible ASCII: it goes into the request as it stands.
fn path(node: &Node<'_>) -> Option<String> {
    let text = node.text()?;
    if !text.starts_with('/') || text.len() > PATH_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        let remedy =
            format!("write a path as it goes over the wire: / and at most {PATH_BYTES_MAX} visible characters");
        node.wrong(format!("is \"{text}\""), remedy);
        return None;
    }
    Some(text.to_owned())
}

fn host(node: &Node<'_>) -> Option<String> {
    let text = node.text()?;
    let is_of_a_host =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':' | b'[' | b']' | b'_');
    if text.is_empty() || text.len() > HOST_BYTES_MAX || !text.bytes().all(is_of_a_host) {
        node.wrong(format!("is \"{text}\""), "write a name, or an address, and a port if it needs one");
        return None;
    }
    Some(text.to_owned())
}
