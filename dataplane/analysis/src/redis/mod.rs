//! A Redis command becomes facts. Call order for one request:
//!
//! 1. [`resolve`] the name (and argument 1): which command is it?
//! 2. [`check_arity`]: may it run with this many arguments?
//! 3. [`treatment`]: how must the session treat it ([`Class`])?
//! 4. [`keys`]: which arguments are keys, and what happens to them? [`channels`](channels()): which are channels?
//!
//! [`text`] has the server's own words for what fails on the way.

mod args;
mod channels;
mod class;
mod command;
mod keys;
mod lookup;
mod table;
pub mod text;
mod treatment;

pub use args::Args;
pub use channels::{Channels, channels};
pub use class::{Class, ClientCommand, LocalCommand};
pub use command::{
    Access, BeginSearch, Categories, Command, CommandId, FindKeys, Flags, KeyFlags, KeySpec, RequestPolicy,
    ResponsePolicy, check_arity, retry_safe,
};
pub use keys::{KeyAt, KeyError, Keys, RANGES_MAX, keys};
pub use lookup::{COMMANDS, NAME_BYTES_MAX, Resolved, UNKNOWN_NAME_BYTES_MAX, may_forward_unknown, resolve};
pub use table::SERVERS;
pub use treatment::{is_blocking, treatment};
