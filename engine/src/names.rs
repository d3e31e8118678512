//! Host names of servers, and the addresses that they had last.
//!
//! The system's resolver tells no time to live, so a name is asked for again when its answer is [`FRESH`] old and somebody
//! connects. While it cannot be resolved, the last good answer goes on being used: servers outlive name servers.

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::driver::BLOCKING_THREADS;

/// How long an answer is used without asking again. Default 5 s, as Envoy's `dns_refresh_rate`.
const FRESH: Duration = Duration::from_secs(5);

/// Names that a worker remembers. Those of a configuration are far fewer; beyond it nothing is remembered.
const NAMES_MAX: usize = 4_096;

/// How long the last good answer is used after one that was none, before it is asked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// Resolutions under way on one worker. A name server that hangs holds a helper thread each, and who asks for one more than there
/// are holds up the worker: half of them are for other work.
const UNDER_WAY_MAX: usize = BLOCKING_THREADS / 2;

#[derive(Clone)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// When it is to be asked for again.
    until: Instant,
}

thread_local! {
    static KNOWN: RefCell<HashMap<(String, u16), Known>> = RefCell::default();
    static UNDER_WAY: Arc<AtomicUsize> = Arc::default();
}

/// A resolution, until it is dropped: by the thread that makes it, whoever has given it up meanwhile.
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    /// `None`: there are as many as may be.
    fn begin() -> Option<Self> {
        let count = UNDER_WAY.with(Arc::clone);
        if count.fetch_add(1, Relaxed) >= UNDER_WAY_MAX {
            count.fetch_sub(1, Relaxed);
            return None;
        }
        Some(Self(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The addresses of a host, by `resolve` if need be.
///
/// # Errors
/// It cannot be resolved, and never could.
pub(crate) async fn addresses<F: Future<Output = io::Result<Vec<SocketAddr>>>>(
    host: (&str, u16),
    resolve: impl FnOnce(UnderWay) -> F,
) -> io::Result<Vec<SocketAddr>> {
    let key = (host.0.to_owned(), host.1);
    let known = KNOWN.with_borrow(|all| all.get(&key).cloned());
    if let Some(known) = &known
        && Instant::now() < known.until
    {
        return Ok(known.addresses.clone());
    }
    let known = known.map(|known| known.addresses);
    let Some(under_way) = UnderWay::begin() else {
        return known.ok_or_else(|| io::Error::other("too many names are being resolved"));
    };
    if let Some(addresses) = &known {
        // Who comes meanwhile need not wait for the same.
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

fn keep(key: &(String, u16), addresses: &[SocketAddr], time: Duration) {
    KNOWN.with_borrow_mut(|all| {
        if all.len() < NAMES_MAX || all.contains_key(key) {
            let until = Instant::now() + time;
            all.insert(key.clone(), Known { addresses: addresses.to_vec(), until });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer, and whether the resolver was asked.
    fn ask(name: &str, answer: io::Result<Vec<SocketAddr>>) -> (io::Result<Vec<SocketAddr>>, bool) {
        let mut is_asked = false;
        let resolve = |_under_way| async {
            is_asked = true;
            answer
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
    fn a_name_is_asked_for_again_when_its_answer_is_old_and_the_last_good_one_outlives_failures() {
        let one: Vec<SocketAddr> = vec!["192.0.2.1:80".parse().expect("an address")];
        let two: Vec<SocketAddr> = vec!["192.0.2.2:80".parse().expect("an address")];
        let failure = || Err(io::Error::other("no name server"));
        assert!(ask("a.example", failure()).0.is_err(), "it never could be resolved");
        let (got, is_asked) = ask("a.example", Ok(one.clone()));
        assert_eq!((got.ok(), is_asked), (Some(one.clone()), true));
        let (got, is_asked) = ask("a.example", Ok(two.clone()));
        assert_eq!((got.ok(), is_asked), (Some(one.clone()), false), "a fresh answer is enough");
        old("a.example");
        assert_eq!(ask("a.example", failure()).0.ok(), Some(one.clone()));
        let (got, is_asked) = ask("a.example", Ok(two.clone()));
        assert_eq!((got.ok(), is_asked), (Some(one.clone()), false), "nobody waits for a name server that is down");
        old("a.example");
        assert_eq!(ask("a.example", Ok(Vec::new())).0.ok(), Some(one), "a name without an address is a failure too");
        old("a.example");
        assert_eq!(ask("a.example", Ok(two.clone())).0.ok(), Some(two));
    }

    #[test]
    fn a_name_server_that_hangs_holds_up_two_threads_and_no_worker() {
        let hanging: Vec<UnderWay> = std::iter::from_fn(UnderWay::begin).collect();
        assert_eq!(hanging.len(), UNDER_WAY_MAX);
        let (got, is_asked) = ask("b.example", Ok(vec!["192.0.2.1:80".parse().expect("an address")]));
        assert!(got.is_err() && !is_asked);
        drop(hanging);
        assert!(ask("b.example", Ok(vec!["192.0.2.1:80".parse().expect("an address")])).0.is_ok());
    }
}
