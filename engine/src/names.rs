//! Host names of servers, and the addresses that they had last.
//!
//! The system's resolver tells no time to live, so a name is asked for again when its answer is [`FRESH`] old and somebody
//! connects. While it cannot be resolved, the last good answer goes on being used: servers outlive name servers.

use std::{
    cell::RefCell,
    collections::HashMap,
    future::Future,
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

/// How long an answer is used without asking again. Default 5 s, as Envoy's `dns_refresh_rate`.
const FRESH: Duration = Duration::from_secs(5);

/// Names that a worker remembers. Those of a configuration are far fewer; beyond it nothing is remembered.
const NAMES_MAX: usize = 4_096;

#[derive(Clone)]
struct Known {
    addresses: Vec<SocketAddr>,
    since: Instant,
}

thread_local! {
    static KNOWN: RefCell<HashMap<(String, u16), Known>> = RefCell::default();
}

/// The addresses of a host, by `resolve` if need be.
///
/// # Errors
/// It cannot be resolved, and never could.
pub(crate) async fn addresses(
    host: (&str, u16),
    resolve: impl Future<Output = io::Result<Vec<SocketAddr>>>,
) -> io::Result<Vec<SocketAddr>> {
    let key = (host.0.to_owned(), host.1);
    let known = KNOWN.with_borrow(|all| all.get(&key).cloned());
    if let Some(known) = &known
        && known.since.elapsed() < FRESH
    {
        return Ok(known.addresses.clone());
    }
    match (resolve.await, known) {
        (Ok(addresses), _) if !addresses.is_empty() => {
            KNOWN.with_borrow_mut(|all| {
                if all.len() < NAMES_MAX || all.contains_key(&key) {
                    all.insert(key, Known { addresses: addresses.clone(), since: Instant::now() });
                }
            });
            Ok(addresses)
        }
        (_, Some(known)) => Ok(known.addresses),
        (failed, None) => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer, and whether the resolver was asked.
    fn ask(name: &str, answer: io::Result<Vec<SocketAddr>>) -> (io::Result<Vec<SocketAddr>>, bool) {
        let mut is_asked = false;
        let resolve = async {
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
            known.since = Instant::now().checked_sub(FRESH).expect("later than the start of the clock");
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
        assert_eq!(ask("a.example", Ok(Vec::new())).0.ok(), Some(one), "a name without an address is a failure too");
        assert_eq!(ask("a.example", Ok(two.clone())).0.ok(), Some(two), "it is asked for again after each failure");
    }
}
