//! An HTTP/1.1 origin with fixed replies: the cheapest server that still reads every request by the rules.
//!
//! | target | reply |
//! |---|---|
//! | `/` | 200 and the default body |
//! | `/N` | 200 and N bytes, at most [`BODY_BYTES_MAX`] |
//! | `/requests` | 200 and how many requests its worker has answered, this one included |
//! | others | 404 |
//!
//! ```no_run
//! use weir_origin::http::{HttpOriginSettings, start};
//!
//! let origin = start(HttpOriginSettings::default())?; // one worker, 127.0.0.1, any free port
//! println!("curl http://{}/1024", origin.addresses()[0]);
//! origin.stop()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Every method is answered alike, HEAD without the body; bodies of requests are read and dropped.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | what to serve |
//! | `server`, `connection` | workers; one connection: chunks in, replies out |
//! | `session` | requests to replies, without I/O |

mod connection;
mod server;
mod session;
mod settings;

pub use crate::server::{Origin, OriginStats};
pub use server::start;
pub use settings::{BODY_BYTES_MAX, CONNECTIONS_MAX, HttpOriginSettings};
