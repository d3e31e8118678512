//! The state of the process that all AI listeners of one worker use.

use std::{rc::Rc, sync::Arc};

use weir_spend::{keys::IssuedKeys, meter::Meter};

use crate::{cache::ResponseCache, recent::RecentRequests, stored::StoredResponses};

/// Admission, cache, issued keys and stored responses of the process, and the last requests of the worker. Clones share them.
#[derive(Clone)]
pub struct WorkerShare {
    /// Admission on this worker.
    pub meter: Meter,
    /// The exact cache of the process.
    pub cache: Arc<ResponseCache>,
    /// The keys that the admin API has issued.
    pub issued: Arc<IssuedKeys>,
    /// The last requests of this worker.
    pub recent: Rc<RecentRequests>,
    /// The stored responses of the process.
    pub stored: StoredResponses,
}
