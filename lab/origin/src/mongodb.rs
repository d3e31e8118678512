//! A MongoDB origin: it speaks OP_MSG as MongoDB 8.0 does, and answers from the request alone.
//!
//! ```no_run
//! use weir_origin::mongodb::{MongodbOriginSettings, start};
//!
//! let origin = start(MongodbOriginSettings::default())?; // one worker, 127.0.0.1, any free port
//! println!("mongosh 'mongodb://127.0.0.1:{}/lab?directConnection=true'", origin.addresses()[0].port());
//! origin.stop()?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! It stores no documents, unless its settings say so. Every collection seems to have the same number of them, with `_id` from 1 on, and
//! each follows from its number and its namespace ([`filler`]). A document also has the `comment` of the command that it was found by, in its field `request`;
//! every other reply has it beside `ok`. A foreign reply therefore shows. Writes are confirmed and forgotten, but change streams see
//! them. Cursors, sessions, transactions, exhaust streams, compression, logins and fail points behave as in MongoDB.
//!
//! The command `weirOrigin` shows counts, and sets the face of the server: a mongod without a set, a mongos, a mongos behind a load
//! balancer, or a member of a set. [`Face`] has its fields.
//!
//! | file | concept |
//! |---|---|
//! | `settings`, `face` | options of the server; its place in a deployment |
//! | `state` | objects that the workers share |
//! | `connection` | one connection: chunks in, replies out, held back if there is a delay |
//! | `session` | messages become requests, and requests replies, of every form on the wire |
//! | `request`, `failure` | a command with its arguments; errors with their codes, names and labels |
//! | `dispatch` | which command may run, and the function that runs it |
//! | `hello`, `login` | the handshake, also one that waits; SCRAM |
//! | `fail_point` | `configureFailPoint`: errors, lost connections and delays on request |
//! | `documents`, `selection` | documents that follow from their numbers; the numbers that a filter selects |
//! | `read`, `write` | find, aggregate, count, distinct; inserts, updates and deletes |
//! | `store` | documents in memory |
//! | `stored`, `stored_batches`, `stored_writes` | the commands about them, and their results |
//! | `matching`, `modifying` | filters and updates of stored documents |
//! | `cursors`, `batches` | results that are read in several replies; the commands about them |
//! | `changes` | writes as change streams see them |
//! | `transactions`, `sessions` | transactions and retryable writes of logical sessions; commands about both |
//! | `administration` | ping, lists of databases and collections, facts about the server |
//! | `control` | `weirOrigin` |

mod administration;
mod batches;
mod changes;
mod connection;
mod control;
mod cursors;
mod dispatch;
mod documents;
mod face;
mod fail_point;
mod failure;
mod hello;
mod login;
mod matching;
mod modifying;
mod read;
mod request;
mod selection;
mod session;
mod sessions;
mod settings;
mod state;
mod store;
mod stored;
mod stored_batches;
mod stored_writes;
mod transactions;
mod write;

use std::{io, rc::Rc, sync::Arc};

pub use self::documents::filler;
pub use self::face::{Face, Member};
pub use self::settings::{CONNECTIONS_MAX, CURSORS_MAX, DOCUMENTS_MAX, MongodbOriginSettings, TRANSACTIONS_MAX};
use self::state::State;
use crate::server::{self, Places};
pub use crate::server::{Origin, OriginStats};
pub use weir_mongodb_codec::compressed::Compressor;

/// Binds and serves. When it returns, clients can connect.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for settings out of range; otherwise the address cannot be bound, or a worker's runtime cannot be
/// built.
pub fn start(settings: MongodbOriginSettings) -> io::Result<Origin> {
    settings.check()?;
    let state = Arc::new(State::new(settings.face.clone())?);
    let MongodbOriginSettings { bind, workers, cpus, runtime, .. } = &settings;
    server::start(&Places { bind, workers: *workers, cpus, runtime }, |post| {
        let (settings, state) = (settings.clone(), state.clone());
        move || async move {
            let _housekeeper = server::count_cpu(post.stats.clone());
            let core = Rc::new(state::Core::new(settings, state, post.stats.clone()));
            server::accept(&post.listener, post.inbox, &post.stats, |socket| connection::admit(&core, socket)).await;
        }
    })
}
