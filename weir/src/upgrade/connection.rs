//! A client's connection that moves to the new process, as a message.

use serde::{Deserialize, Serialize};

/// The state of a session, in the form of its protocol.
pub type SessionFields = serde_json::Map<String, serde_json::Value>;

/// The message that goes along with the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovedConnection {
    /// The address of its listener, as the configuration of the old process has it.
    pub bind: String,
    /// Its number.
    pub id: u64,
    /// Address of the client.
    pub peer: String,
    /// All other fields.
    #[serde(flatten)]
    pub session: SessionFields,
}
