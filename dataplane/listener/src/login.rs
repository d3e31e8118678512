//! Parts of logins that all protocols share.
//!
//! | file | concept |
//! |---|---|
//! | `entropy` | random bytes for many logins at once, and those of the process |
//! | `derivation` | keys from passwords, made by another thread |
//! | `penalty` | the delay after wrong passwords |

mod derivation;
pub mod entropy;
mod penalty;

pub use derivation::derive;
pub use penalty::{Begun, Penalties, Waiting, network};
