//! Side by side: the same bytes to a real server directly and through the gateway, and the replies
//! compared byte for byte. The scripts are `tests/parity/*.txt`; [`script`] says how they are
//! written.

pub mod play;
pub mod script;

pub use play::{Pair, Play};
pub use script::{Case, Line, Script, Tolerance};
