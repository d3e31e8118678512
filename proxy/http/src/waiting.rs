//! Waits of a request, while its client waits for the response.

use std::{future::poll_fn, pin::pin, task::Poll};

use weir_base::time::Time;

use crate::{body::Broken, client::Client};

/// The reason why a wait was cut short.
pub(crate) enum Cut {
    /// The client does not wait for the response any more.
    Gone,
    /// The body of the request did not come to its end.
    Broken(Broken),
    /// The wait took too long.
    Late,
}

/// Waits for `future`, while the client waits for the response, and until the request `ends`.
pub(crate) async fn while_wanted<T>(
    client: &mut impl Client,
    ends: Option<Time>,
    future: impl Future<Output = T>,
) -> Result<T, Cut> {
    let mut future = pin!(future);
    let mut deadline = None;
    poll_fn(|context| {
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        if client.poll_gone(context).is_ready() {
            return Poll::Ready(Err(Cut::Gone));
        }
        if let Poll::Ready(broken) = client.poll_arrived(context) {
            return Poll::Ready(Err(Cut::Broken(broken)));
        }
        let Some(ends) = ends else { return Poll::Pending };
        let deadline = deadline.get_or_insert_with(|| {
            let deadline = weir_engine::deadline();
            deadline.set(ends);
            deadline
        });
        deadline.poll_expired(context).map(|()| Err(Cut::Late))
    })
    .await
}
