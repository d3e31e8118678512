//! A client's connection that moves to the new process, as a message.

use serde::{Deserialize, Serialize};
use weir_listener::ConnectionDetails;
use weir_redis::MovedSession;

/// What goes along with the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovedConnection {
    /// The address of its listener, as the configuration of the old process has it.
    pub bind: String,
    /// Its number.
    pub id: u64,
    /// Address of the client.
    pub peer: String,
    name: String,
    user: String,
    library: String,
    library_version: String,
    db: u32,
    version: u8,
    is_authenticated: bool,
    is_restricted: bool,
    auth_failures: u32,
    wants_replies: bool,
    skips_next_reply: bool,
    /// Hexadecimal: JSON has no bytes.
    input: String,
}

impl MovedConnection {
    /// As the old process has it.
    pub fn new(bind: String, id: u64, peer: String, session: MovedSession) -> Self {
        let details = session.details;
        Self {
            bind,
            id,
            peer,
            name: details.name,
            user: details.user,
            library: details.library,
            library_version: details.library_version,
            db: details.db.unwrap_or_default(),
            version: session.version,
            is_authenticated: session.is_authenticated,
            is_restricted: session.is_restricted,
            auth_failures: session.auth_failures,
            wants_replies: session.wants_replies,
            skips_next_reply: session.skips_next_reply,
            input: session.input.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// As the new process needs it; `None` if the input is no hexadecimal text.
    pub fn session(self) -> Option<MovedSession> {
        let digits = self.input.as_bytes().chunks(2);
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2);
        let details = ConnectionDetails {
            name: self.name,
            user: self.user,
            library: self.library,
            library_version: self.library_version,
            db: Some(self.db),
            ..ConnectionDetails::default()
        };
        Some(MovedSession {
            is_authenticated: self.is_authenticated,
            is_restricted: self.is_restricted,
            auth_failures: self.auth_failures,
            wants_replies: self.wants_replies,
            skips_next_reply: self.skips_next_reply,
            version: self.version,
            details,
            input: digits.map(byte).collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use weir_engine::handover::{Channel, MESSAGE_BYTES_MAX};
    use weir_redis::MOVED_INPUT_BYTES_MAX;

    use super::*;
    use crate::upgrade::message::Message;

    fn session() -> MovedSession {
        MovedSession {
            is_authenticated: true,
            is_restricted: true,
            auth_failures: 2,
            wants_replies: true,
            skips_next_reply: false,
            details: ConnectionDetails {
                name: "reports \"x\"".to_owned(),
                user: "default".to_owned(),
                library: "jedis".to_owned(),
                library_version: "5.1".to_owned(),
                db: Some(3),
                ..ConnectionDetails::default()
            },
            version: 3,
            input: (0..=255).collect(),
        }
    }

    #[test]
    fn a_session_arrives_as_it_departed() {
        let moved = MovedConnection::new("127.0.0.1:6380".to_owned(), 7, "127.0.0.1:50000".to_owned(), session());
        let text = serde_json::to_string(&moved).expect("JSON");
        let read: MovedConnection = serde_json::from_str(&text).expect("the same");
        assert_eq!(read, moved);
        assert_eq!(read.session(), Some(session()));
        let broken = MovedConnection { input: "2a3".to_owned(), ..MovedConnection::default() };
        assert_eq!(broken.session(), None);
    }

    /// What may move fits into one message.
    #[test]
    fn the_largest_session_fits() {
        let (ours, _theirs) = Channel::pair().expect("a pair");
        // Every character of a name takes two in JSON at the most: names are printable.
        let details = ConnectionDetails { name: "\\".repeat(4 * 1024), ..ConnectionDetails::default() };
        let largest = MovedSession { details, input: vec![0xff; MOVED_INPUT_BYTES_MAX], ..session() };
        let moved = MovedConnection::new("unix:/".to_owned() + &"x".repeat(106), u64::MAX, "p".repeat(64), largest);
        let message = Message::Connection(Box::new(moved));
        assert!(serde_json::to_vec(&message).expect("JSON").len() < MESSAGE_BYTES_MAX);
        message.send(&ours, &[]).expect("it fits");
    }
}
