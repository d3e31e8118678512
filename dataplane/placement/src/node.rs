//! Servers by the name that another server has for them, and by number.

/// No endpoint has this number.
pub const NOBODY: u16 = u16::MAX;

/// A node as another one names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// `None`: the host of the queried server.
    pub host: Option<String>,
    /// Its port.
    pub port: u16,
}

impl Node {
    /// The queried one.
    pub const ASKED: Self = Self { host: None, port: 0 };
}
