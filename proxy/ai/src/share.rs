//! The state of the process that all AI listeners of one worker use.

use std::{rc::Rc, sync::Arc};

use weir_spend::keys::IssuedKeys;

use crate::recent::RecentRequests;

/// The issued keys of the process, and the last requests of the worker. Clones share them.
#[derive(Clone, Debug)]
pub struct WorkerShare {
    /// The keys that the admin API has issued.
    pub issued: Arc<IssuedKeys>,
    /// The last requests of this worker.
    pub recent: Rc<RecentRequests>,
}
