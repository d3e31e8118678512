//! MCP and A2A between a client and a server, without I/O: the facts of a message, lists of tools that lose some of them, several servers
//! under one name, and errors.
//! No tree, no sockets, no clock.
//!
//! Both protocols are JSON-RPC 2.0 over HTTP. Sources: the specification of MCP, revisions 2025-03-26 to 2026-07-28 ("Transports",
//! "Tools"), and that of A2A, versions 0.3 and 1.0 ("JSON-RPC Protocol Binding").
//!
//! | file | concept |
//! |---|---|
//! | [`message`] | [`MessageReader`]: a message in pieces leads to its kind, its method and the name that it calls |
//! | [`tools`] | a list of tools without those that a client may not use |
//! | [`events`] | [`ToolEvents`]: the same within a stream of server-sent events |
//! | [`federation`] | names with the prefix of their server, and the lists and handshakes of several servers as one |
//! | [`header`] | fields of the head that repeat a part of the message |
//! | [`mod@error`] | errors of JSON-RPC as bytes |
//! | [`limits`] | every bound with its reason |
//!
//! A message that two readers could read differently is refused: a member that decides occurs once, in one spelling. So the tool that a
//! policy has judged is the tool that the server calls. Apart from the tools that a list loses, and the
//! messages of a federation, every byte passes as it came.

#![forbid(unsafe_code)]

pub mod error;
pub mod events;
pub mod federation;
pub mod header;
pub mod limits;
pub mod message;
pub mod tools;

pub use error::ErrorReply;
pub use events::{ToolEvents, ToolEventsError};
pub use message::{Message, MessageError, MessageKind, MessageReader};
pub use tools::{ListError, permitted_tools};
