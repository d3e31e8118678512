//! Messages between the two processes: JSON, one object per message, readable by programs of other versions.

use std::{
    fmt, io,
    os::fd::{BorrowedFd, OwnedFd},
};

use serde::{Deserialize, Serialize};
use weir_engine::handover::{Channel, DESCRIPTORS_MAX, Received};

use super::{
    connection::MovedConnection,
    orders::{Order, Pause},
};

/// Version of this vocabulary. A new field needs no new version, a new meaning does.
pub const PROTOCOL: u32 = 1;

/// Bytes of a reason. Default 16 KiB: a configuration with dozens of mistakes; the whole fits in one message.
const REASON_BYTES_MAX: usize = 16 * 1024;

/// One message.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Message {
    /// The old process begins.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// Its process id.
        pid: u32,
        /// How many upgrades led to it.
        restart_epoch: u64,
        /// The number that its next connection will get.
        next_connection_id: u64,
        /// It takes [`Message::Paused`] while it drains. A process of an older version does not.
        #[serde(default)]
        takes_orders: bool,
    },
    /// Listening sockets, in the order of the descriptors.
    Sockets {
        /// Whose they are.
        sockets: Vec<SocketOf>,
        /// No more are coming.
        is_last: bool,
    },
    /// The new process could serve.
    Ready {
        /// Its process id.
        pid: u32,
        /// The addresses of listeners that its configuration does not have.
        untaken: Vec<String>,
        /// The addresses of listeners at which it goes on with connections.
        movable: Vec<String>,
        /// The directory of its budgets, whose journal it opens when it is let serve. `None`: it has none, or is of an older version.
        #[serde(default)]
        state: Option<String>,
    },
    /// The new process shall serve.
    Take {
        /// Pauses that hold. A process of an older version has none.
        #[serde(default)]
        pauses: Vec<Pause>,
        /// So many [`Message::Orders`] follow, which the new process takes before it serves. One of an older version ignores them.
        #[serde(default)]
        more: u32,
    },
    /// Further orders of operators that hold.
    Orders {
        /// The orders.
        orders: Vec<Order>,
    },
    /// It does.
    Serving,
    /// A client's connection, whose descriptor comes along.
    Connection(Box<MovedConnection>),
    /// A request at the new process to cancel the query of a client of the old one.
    Cancel {
        /// Its number, for the end of the request.
        number: u64,
        /// The address of the listener that it came to.
        bind: String,
        /// The process id of its key.
        pid: u32,
        /// The secret of its key.
        secret: KeySecret,
    },
    /// That request is over.
    CancelOver {
        /// Its number.
        number: u64,
    },
    /// PAUSE or RESUME at the new process, for the clients of the old one.
    Paused {
        /// The address of the listener that the order came to.
        bind: String,
        /// The database, as bytes; `None`: all.
        database: Option<Vec<u8>>,
        /// PAUSE.
        is_paused: bool,
    },
    /// The new process will not serve.
    Failed {
        /// Why not.
        reason: String,
    },
}

/// The secret of a cancel key. It is not shown.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeySecret(pub Vec<u8>);

impl fmt::Debug for KeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeySecret")
    }
}

/// Whose a listening socket is. The address is that of the configuration, which need not be a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketOf {
    /// Socket of the listener that is bound there.
    Listener(String),
    /// Socket of the admin server.
    Admin(String),
}

/// Event from the other process.
#[derive(Debug)]
pub enum PeerEvent {
    /// It said this, with these descriptors.
    Message(Message, Vec<OwnedFd>),
    /// It closed its end.
    End,
    /// Nothing within the patience of the channel.
    Nothing,
}

impl Message {
    /// A refusal to serve. A long reason is cut.
    pub fn failed(reason: &str) -> Self {
        let end = (0..=reason.len().min(REASON_BYTES_MAX)).rev().find(|at| reason.is_char_boundary(*at));
        Self::Failed { reason: reason[..end.unwrap_or(0)].to_owned() }
    }

    /// Sends it.
    ///
    /// # Errors
    /// Those of [`Channel::send`].
    pub fn send(&self, channel: &Channel, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        channel.send(&serde_json::to_vec(self).map_err(io::Error::other)?, descriptors)
    }
}

/// The messages that carry all of `sockets`, with the descriptors of each.
pub fn in_messages<'fd>(sockets: &[(SocketOf, BorrowedFd<'fd>)]) -> Vec<(Message, Vec<BorrowedFd<'fd>>)> {
    let count = sockets.len().div_ceil(DESCRIPTORS_MAX).max(1);
    let part = |at: usize| {
        let part = sockets.iter().skip(at * DESCRIPTORS_MAX).take(DESCRIPTORS_MAX);
        let (names, descriptors) = part.map(|(of, descriptor)| (of.clone(), *descriptor)).unzip();
        (Message::Sockets { sockets: names, is_last: at + 1 == count }, descriptors)
    };
    (0..count).map(part).collect()
}

/// Receives the next event from the other process.
///
/// # Errors
/// Words that this version does not know, and those of [`Channel::receive`].
pub fn receive(channel: &Channel) -> io::Result<PeerEvent> {
    match channel.receive()? {
        Received::End => Ok(PeerEvent::End),
        Received::Nothing => Ok(PeerEvent::Nothing),
        Received::Message(bytes, descriptors) => match serde_json::from_slice(&bytes) {
            Ok(message) => Ok(PeerEvent::Message(message, descriptors)),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("not understood: {error}"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn any_number_of_sockets_fits_into_messages_and_the_last_one_says_so() {
        let null = std::fs::File::open("/dev/null").expect("there");
        for count in [0, 1, DESCRIPTORS_MAX, DESCRIPTORS_MAX + 1, 3 * DESCRIPTORS_MAX] {
            // As long as an address may be.
            let one = |_| (SocketOf::Listener(format!("unix:/{}", "x".repeat(106))), null.as_fd());
            let sockets: Vec<_> = (0..count).map(one).collect();
            let messages = in_messages(&sockets);
            let (ours, _theirs) = Channel::pair().expect("a pair");
            let mut sent = 0;
            for (at, (message, descriptors)) in messages.iter().enumerate() {
                let Message::Sockets { sockets, is_last } = message else { panic!("{message:?}") };
                assert_eq!((sockets.len(), *is_last), (descriptors.len(), at + 1 == messages.len()));
                message.send(&ours, descriptors).expect("it fits");
                sent += sockets.len();
            }
            assert_eq!(sent, count);
        }
    }

    #[test]
    fn the_order_to_serve_is_understood_by_older_and_by_newer_programs() {
        // The words of a program without pauses, which ignores fields that it does not know.
        let taken: Message = serde_json::from_str("{\"kind\":\"take\"}").expect("understood");
        assert_eq!(taken, Message::Take { pauses: Vec::new(), more: 0 });
        let pauses = vec![Pause { upstream: "main".into(), is_all: false, databases: vec![b"sh\xffop".to_vec()] }];
        let take = Message::Take { pauses, more: 2 };
        let text = serde_json::to_string(&take).expect("a text");
        assert_eq!(serde_json::from_str::<Message>(&text).expect("understood"), take);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let Message::Failed { reason } = Message::failed(&"ä".repeat(REASON_BYTES_MAX)) else { panic!("a failure") };
        assert_eq!(reason.len(), REASON_BYTES_MAX);
        let Message::Failed { reason } = Message::failed(&format!("a{}", "ä".repeat(REASON_BYTES_MAX))) else {
            panic!()
        };
        assert_eq!(reason.len(), REASON_BYTES_MAX - 1);
        assert_eq!(Message::failed("short"), Message::Failed { reason: "short".to_owned() });
    }
}
