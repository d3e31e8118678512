//! Names of tools and prompts with their server in front.

/// Stands between the name of a server and the server's own name of a tool or a prompt.
pub const SEPARATOR: &str = "__";

/// Whether names with this server in front lead back to it: the first separator in them must be the one behind it.
pub fn is_server_prefix(server: &str) -> bool {
    !server.is_empty() && !server.contains(SEPARATOR) && !server.ends_with('_')
}

/// The server of a name, and the name that the server knows. `None`: it has no prefix.
pub fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}
