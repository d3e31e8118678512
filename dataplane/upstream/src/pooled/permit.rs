//! The right to one connection.

use std::sync::Arc;

use weir_base::time::turn;

use super::{PooledProtocol, shared::KeyShare};

/// The right to one connection of a key, until it is dropped: then the oldest that waits may make one.
pub(crate) struct PoolPermit<P: PooledProtocol> {
    share: Arc<KeyShare<P>>,
    /// `Some`: the login is under way, perhaps because of one that waits.
    login: Option<Option<u64>>,
    is_returned: bool,
}

impl<P: PooledProtocol> PoolPermit<P> {
    /// The ledger has counted it. `cause`: the one that waits and makes the connection.
    pub(super) fn for_login(share: Arc<KeyShare<P>>, cause: Option<u64>) -> Self {
        Self { share, login: Some(cause), is_returned: false }
    }

    /// Its connection belongs to the worker of `share` now.
    pub(crate) fn moved_to(&mut self, share: &Arc<KeyShare<P>>) {
        self.share = share.clone();
    }

    /// The connection stands.
    pub(crate) fn logged_in(&mut self) {
        if let Some(cause) = self.login.take() {
            self.share.ledger.change(|ledger| {
                ledger.logged_in(&self.share.key, cause);
                ledger.launch_all(turn::now())
            });
        }
    }

    /// The connection is closed, and the permit is for a login that another one begins: the ledger has counted that.
    pub(super) fn for_replacement(mut self, cause: u64) -> Self {
        self.login = Some(Some(cause));
        self
    }

    /// The ledger has taken it back.
    pub(super) fn forget(mut self) -> Option<u64> {
        self.is_returned = true;
        self.login.take().flatten()
    }
}

impl<P: PooledProtocol> Drop for PoolPermit<P> {
    fn drop(&mut self) {
        if self.is_returned {
            return;
        }
        self.share.ledger.change(|ledger| match self.login {
            Some(cause) => {
                ledger.login_dropped(&self.share.key, cause);
                // Another key may have waited for the result.
                ledger.launch_all(turn::now())
            }
            None => {
                ledger.closed(&self.share.key);
                ledger.launch(&self.share.key, turn::now())
            }
        });
    }
}
