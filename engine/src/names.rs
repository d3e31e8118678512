//! Host names of servers, and the addresses that they had last.
//!
//! The system's resolver gives no time to live, so a name is resolved again when its addresses are [`FRESH`] old and somebody
//! connects. While it cannot be resolved, the last good addresses go on being used: servers outlive name servers.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::blocking::THREADS_MAX;
use crate::gate::{Gate, Pass};

/// How long addresses are used without another query. Default 5 s, as Envoy's `dns_refresh_rate`.
const FRESH: Duration = Duration::from_secs(5);

/// Names that a worker remembers. Those of a configuration are far fewer; beyond it nothing is remembered.
const NAMES_MAX: usize = 4_096;

/// How long the last good addresses are used after a failed query, before the next one.
const PAUSE: Duration = Duration::from_secs(1);

/// Resolutions under way on one worker, one of each name. A name server that hangs holds a helper thread each, and who asks for
/// one more than there are holds up the worker: half of them are for other work.
pub(crate) const UNDER_WAY_MAX: usize = THREADS_MAX / 2;

#[derive(Clone)]
struct CachedAddresses {
    addresses: Vec<SocketAddr>,
    /// The time of the next resolution.
    until: Instant,
}

thread_local! {
    static KNOWN: RefCell<HashMap<Key, CachedAddresses>> = RefCell::default();
    static UNDER_WAY: Arc<Gate<Key>> = Gate::new(UNDER_WAY_MAX);
}

/// A resolution, until it is dropped.
pub(crate) type PendingLookup = Pass<Key>;

type Key = (String, u16);

/// The addresses of a host, by `resolve` if need be.
///
/// # Errors
/// It cannot be resolved, and never could.
pub(crate) async fn addresses<F: Future<Output = io::Result<Vec<SocketAddr>>>>(
    host: (&str, u16),
    resolve: impl FnOnce(PendingLookup) -> F,
) -> io::Result<Vec<SocketAddr>> {
    let key = (host.0.to_owned(), host.1);
    let known = KNOWN.with_borrow(|all| all.get(&key).cloned());
    if let Some(known) = &known
        && Instant::now() < known.until
    {
        return Ok(known.addresses.clone());
    }
    let known = known.map(|known| known.addresses);
    let gate = UNDER_WAY.with(Arc::clone);
    let under_way = match &known {
        Some(addresses) => match gate.try_enter(&key) {
            Some(under_way) => under_way,
            None => return Ok(addresses.clone()),
        },
        None => gate.enter(&key).await,
    };
    // The previous holder of the gate may have resolved the name.
    if known.is_none()
        && let Some(found) = KNOWN.with_borrow(|all| all.get(&key).cloned())
    {
        return Ok(found.addresses);
    }
    if let Some(addresses) = &known {
        // Later arrivals need not wait for the same.
        keep(&key, addresses, PAUSE);
    }
    match (resolve(under_way).await, known) {
        (Ok(addresses), _) if !addresses.is_empty() => {
            keep(&key, &addresses, FRESH);
            Ok(addresses)
        }
        (_, Some(addresses)) => {
            keep(&key, &addresses, PAUSE);
            Ok(addresses)
        }
        (failed, None) => failed,
    }
}

fn keep(key: &Key, addresses: &[SocketAddr], time: Duration) {
    KNOWN.with_borrow_mut(|all| {
        if all.len() < NAMES_MAX || all.contains_key(key) {
            let until = Instant::now() + time;
            all.insert(key.clone(), CachedAddresses { addresses: addresses.to_vec(), until });
        }
    });
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, task::Poll};

    use super::*;

    /// The addresses, and whether the resolver was used.
    fn resolved(name: &str, reply: io::Result<Vec<SocketAddr>>) -> (io::Result<Vec<SocketAddr>>, bool) {
        let mut is_asked = false;
        let resolve = |_under_way| async {
            is_asked = true;
            reply
        };
        let got = at_once(addresses((name, 80), resolve));
        (got, is_asked)
    }

    /// Nothing here waits.
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(future).poll(&mut context) {
            std::task::Poll::Ready(value) => value,
            std::task::Poll::Pending => panic!("nothing here waits"),
        }
    }

    fn old(name: &str) {
        KNOWN.with_borrow_mut(|all| {
            let known = all.get_mut(&(name.to_owned(), 80)).expect("it is known");
            known.until = Instant::now();
        });
    }

    #[test]
    fn a_name_is_resolved_again_when_its_addresses_are_old_and_the_last_good_ones_outlive_failures() {
        let one: Vec<SocketAddr> = vec!["192.0.2.1:80".parse().expect("an address")];
        let two: Vec<SocketAddr> = vec!["192.0.2.2:80".parse().expect("an address")];
        let failure = || Err(io::Error::other("no name server"));
        assert!(resolved("a.example", failure()).0.is_err(), "it never could be resolved");
        let (got, is_asked) = resolved("a.example", Ok(one.clone()));
        assert_eq!((got.ok(), is_asked), (Some(one.clone()), true));
        let (got, is_asked) = resolved("a.example", Ok(two.clone()));
        assert_eq!((got.ok(), is_asked), (Some(one.clone()), false), "a fresh reply is enough");
        old("a.example");
        assert_eq!(resolved("a.example", failure()).0.ok(), Some(one.clone()));
        let (got, is_asked) = resolved("a.example", Ok(two.clone()));
        assert_eq!((got.ok(), is_asked), (Some(one.clone()), false), "nobody waits for a name server that is down");
        old("a.example");
        assert_eq!(
            resolved("a.example", Ok(Vec::new())).0.ok(),
            Some(one),
            "a name without an address is a failure too"
        );
        old("a.example");
        assert_eq!(resolved("a.example", Ok(two.clone())).0.ok(), Some(two));
    }

    #[test]
    fn a_name_server_that_hangs_holds_up_two_threads_and_nobody_fails_for_it_at_once() {
        let gate = UNDER_WAY.with(Arc::clone);
        let mut hanging: Vec<PendingLookup> =
            (0..9).filter_map(|number| gate.try_enter(&("hangs.example".into(), number))).collect();
        assert_eq!(hanging.len(), UNDER_WAY_MAX);
        let address: Vec<SocketAddr> = vec!["192.0.2.1:80".parse().expect("an address")];
        let asked = Cell::new(0);
        let ask = || {
            Box::pin(addresses(("b.example", 80), |under_way| {
                asked.set(asked.get() + 1);
                let address = address.clone();
                async move {
                    let _under_way = under_way;
                    Ok(address)
                }
            }))
        };
        let (mut one, mut other) = (ask(), ask());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(one.as_mut().poll(&mut context).is_pending() && other.as_mut().poll(&mut context).is_pending());
        hanging.pop();
        for waiting in [&mut one, &mut other] {
            match waiting.as_mut().poll(&mut context) {
                Poll::Ready(found) => assert_eq!(found.expect("an address"), address),
                Poll::Pending => panic!("there is room"),
            }
        }
        assert_eq!(asked.get(), 1, "the second has the reply of the first");
    }
}
