//! Which servers stand in the availability zone of this gateway: each server is queried for its own zone only.

use std::{rc::Rc, time::Duration};

use weir_base::time::turn;
use weir_engine::timeout;

use crate::{endpoint::Endpoint, endpoints::Endpoints, protocol::Directory};

/// Interval of the checks whether a query is due.
const LOOK: Duration = Duration::from_millis(250);
/// Interval of the queries to one server: another server may have its address by now. Default 60 s.
const AGE_MAX: Duration = Duration::from_secs(60);
/// Interval of the attempts while a server does not respond.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps [`Endpoint::is_near`] of the servers until the task is dropped; `zone` is that of this gateway.
pub(crate) async fn zones_loop<D: Directory>(endpoints: Rc<Endpoints>, directory: Rc<D>, zone: String) {
    let limit = endpoints.settings().connect_timeout;
    loop {
        for number in endpoints.servers() {
            let endpoint = endpoints.get(usize::from(number));
            if turn::now() < endpoint.zone_due.get() {
                continue;
            }
            let asked = timeout(limit, query_directory(&endpoint, &*directory, number)).await.ok().flatten();
            endpoint.zone_due.set(turn::now().saturating_add(if asked.is_some() { AGE_MAX } else { RETRY }));
            // A server that does not respond keeps its place.
            if let Some(told) = asked {
                endpoint.is_near.set(told.as_ref() == Some(&zone));
            }
        }
        weir_engine::sleep(LOOK).await;
    }
}

/// The zone that a server says it stands in; `None`: it did not respond. That it cannot be reached is counted by who needs it.
async fn query_directory<D: Directory>(endpoint: &Endpoint, directory: &D, number: u16) -> Option<Option<String>> {
    let (mut stream, _) = endpoint.connector().open(directory, directory.probe_key(number)).await.ok()?;
    directory.zone(&mut stream).await.ok()
}
