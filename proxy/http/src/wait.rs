//! Waits of a request, while its client waits for the response.

use std::{future::poll_fn, pin::pin, task::Poll};

use weir_base::time::Time;

use crate::{body::BodyError, client::Client};

/// The reason why a wait was cut short.
pub(crate) enum WaitAborted {
    /// The client does not wait for the response any more.
    ClientGone,
    /// The body of the request did not come to its end.
    Body(BodyError),
    /// The wait took too long.
    TimedOut,
}

/// Waits for `future`, while the client waits for the response, and until the request `ends`.
pub(crate) async fn while_client_waits<T>(
    client: &mut impl Client,
    ends: Option<Time>,
    future: impl Future<Output = T>,
) -> Result<T, WaitAborted> {
    let mut future = pin!(future);
    let mut deadline = None;
    poll_fn(|context| {
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(done));
        }
        if client.poll_disconnected(context).is_ready() {
            return Poll::Ready(Err(WaitAborted::ClientGone));
        }
        if let Poll::Ready(broken) = client.poll_arrived(context) {
            return Poll::Ready(Err(WaitAborted::Body(broken)));
        }
        let Some(ends) = ends else { return Poll::Pending };
        let deadline = deadline.get_or_insert_with(|| {
            let deadline = weir_engine::deadline();
            deadline.set(ends);
            deadline
        });
        deadline.poll_expired(context).map(|()| Err(WaitAborted::TimedOut))
    })
    .await
}
