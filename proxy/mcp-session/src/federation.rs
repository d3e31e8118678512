//! Several servers of MCP under one name.
//!
//! A tool or a prompt has the name of its server in front of its own: `github__create_issue`. A client sees one server: its handshake goes
//! to each of them, its lists are those of all, and a call goes to the server of its prefix, with the server's own name of the tool.
//!
//! | file | concept |
//! |---|---|
//! | `prefix.rs` | names with their server |
//! | `handshake.rs` | `initialize`: the request for servers, their offers, and the offer of all |
//! | `list.rs` | the pages of one server's list, and the list of all |
//! | `response.rs` | the response to a request within a body |

mod handshake;
mod list;
mod prefix;
mod response;

use weir_json_codec::JsonError;

pub use handshake::{JointOffer, Offer, REVISION_MIN, Revision, initialize_for_servers, is_revision};
pub use list::{ListKind, PrefixedList, joint_list};
pub use prefix::{SEPARATOR, is_server_prefix, split};
pub use response::{empty_result, response};

/// The reason why the message of a server is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMessageError {
    /// It could be read in two ways, or is no JSON.
    Json(JsonError),
    /// The server has responded with an error.
    Error,
    /// It is not of the form that the method wants.
    Form,
    /// It does not respond to the request.
    Other,
}

impl From<JsonError> for ServerMessageError {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

/// Appends the beginning of a response, up to its result.
fn begin_response(id: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id);
    out.extend_from_slice(b",\"result\":");
}
