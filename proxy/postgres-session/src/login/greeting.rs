//! The messages behind AuthenticationOk.

use weir_postgres_codec::{TransactionStatus, backend};

use crate::cancel_key::CancelKey;

/// Ends a login: the settings that a server of this pool has reported, the client's cancel key, ReadyForQuery.
pub fn greeting<'a>(out: &mut Vec<u8>, parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>, key: &CancelKey) {
    for (name, value) in parameters {
        backend::parameter_status(out, name, value);
    }
    backend::backend_key_data(out, key.pid(), key.secret());
    backend::ready_for_query(out, TransactionStatus::Idle);
}
