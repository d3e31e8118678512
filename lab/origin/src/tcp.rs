//! A TCP origin: every byte comes back, in order, and each direction ends by itself.
//!
//! ```no_run
//! use weir_origin::tcp::{TcpOriginSettings, start};
//!
//! let origin = start(TcpOriginSettings::default())?; // one worker, 127.0.0.1, any free port
//! println!("nc {}", origin.addresses()[0]);
//! origin.stop()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Nothing marks where a message ends, so each chunk that is received counts as a request.
//!
//! | file | concept |
//! |---|---|
//! | `settings` | options of the server |
//! | `connection` | one connection: chunks in, the same out, held back if there is a delay |

mod connection;
mod settings;

use std::{io, rc::Rc};

pub use self::settings::{CONNECTIONS_MAX, TcpOriginSettings};
use crate::server::{self, Places};
pub use crate::server::{Origin, OriginStats};

/// Binds and serves. When it returns, clients can connect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for settings out of range; otherwise the address cannot be bound, or a worker's runtime
/// cannot be built.
pub fn start(settings: TcpOriginSettings) -> io::Result<Origin> {
    settings.check()?;
    let TcpOriginSettings { bind, workers, cpus, runtime, delay, connections_max } = &settings;
    let (delay, connections_max) = (*delay, *connections_max);
    server::start(&Places { bind, workers: *workers, cpus, runtime }, |post| {
        move || async move {
            let _housekeeper = server::count_cpu(post.stats.clone());
            let terms = Rc::new(connection::Terms { delay, connections_max, stats: post.stats.clone() });
            server::accept(&post.listener, post.inbox, &post.stats, |socket| connection::admit(&terms, socket)).await;
        }
    })
}
