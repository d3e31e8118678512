//! A connection that leaves for the process that serves in place of this one.

use std::{any::Any, os::fd::OwnedFd, rc::Rc};

/// A connection on its way out.
pub struct Departure {
    /// The socket of the connection.
    pub socket: OwnedFd,
    /// The number of the connection, which its client may know.
    pub id: u64,
    /// The address of the client, as the PROXY header or the socket has it.
    pub peer: String,
    /// The state of the session, in the form of its protocol.
    pub session: Box<dyn Any + Send>,
}

/// Takes connections away.
pub type Mover = Rc<dyn Fn(Departure)>;
