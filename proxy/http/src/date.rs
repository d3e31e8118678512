//! The Date of responses of the gateway's own.

use std::{
    cell::RefCell,
    time::{SystemTime, UNIX_EPOCH},
};

use weir_base::time::http_date;

thread_local! {
    /// The second that was written last on this worker, and its text.
    static LAST: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
}

/// Gives the date of now to `take`. The text is made once a second.
pub(crate) fn with<T>(take: impl FnOnce(&[u8]) -> T) -> T {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LAST.with_borrow_mut(|(second, text)| {
        if *second != now {
            (*second, *text) = (now, http_date(now));
        }
        take(text.as_bytes())
    })
}
