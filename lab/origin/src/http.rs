//! An HTTP origin with fixed replies: the cheapest server that still reads every request by the rules. One port speaks
//! HTTP/1.1, HTTP/2 by prior knowledge, and WebSocket behind an upgrade; the client's first bytes tell which.
//!
//! | target | reply |
//! |---|---|
//! | `/` | 200 and the default body |
//! | `/N` | 200 and N bytes, at most [`BODY_BYTES_MAX`] |
//! | `/N/WORD` | the same; the body begins with the word, so a client sees whose response it has |
//! | `/requests` | 200 and how many requests its worker has answered, this one included |
//! | others | 404 |
//! | any, with an upgrade | a WebSocket on which every frame comes back |
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
//! | `settings` | options of the server |
//! | `server`, `connection` | workers; one connection: which protocol, chunks in, replies out |
//! | `session`, `target`, `echo` | requests and frames to replies, without I/O |
//! | `http2` | the same for HTTP/2, over the `h2` crate |

mod connection;
mod echo;
mod http2;
mod server;
mod session;
mod settings;
mod target;

pub use crate::server::{Origin, OriginStats};
pub use server::start;
pub use settings::{BODY_BYTES_MAX, CONNECTIONS_MAX, HttpOriginSettings};
