//! No wake is lost, on both drivers: a worker that sleeps at its sockets hears other threads, its operations and its timers.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    rc::Rc,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use weir_base::{rng::Rng, time::Time};
use weir_engine::{
    Mailbox, Worker, mailbox, net, run_blocking,
    settings::{Address, DriverChoice, RuntimeSettings},
    sleep, spawn,
};

/// A wake that takes longer is lost: nothing else would end the sleep.
const LOST_AFTER: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(60);
/// Rounds of one kind of wake alone.
const ROUNDS: u32 = 400;
/// Requesters that take turns with all kinds at the same time.
const REQUESTERS: u64 = 4;

/// The event that ends a wait of the worker.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A message of another thread.
    Message,
    /// Work on a helper thread.
    Work,
    /// A connection that is refused.
    Refusal,
    /// A connection that is accepted.
    Connect,
    /// A name that is resolved.
    Name,
    /// A timer.
    Timer,
    /// A deadline of the wheel.
    Deadline,
}

const KINDS: [Kind; 7] =
    [Kind::Message, Kind::Work, Kind::Refusal, Kind::Connect, Kind::Name, Kind::Timer, Kind::Deadline];

struct Request {
    kind: Kind,
    /// How long the work or the timer takes.
    time: Duration,
    done: mpsc::Sender<Kind>,
}

/// The peers of connections: a port that accepts, and one that refuses.
#[derive(Clone, Copy)]
struct Ports {
    open: u16,
    closed: u16,
}

async fn serve(request: Request, ports: Ports) {
    let to = |port| Address::Socket(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    match request.kind {
        Kind::Message => {}
        Kind::Work => {
            let time = request.time;
            run_blocking(move || spin(time)).await.expect("no panic");
        }
        Kind::Refusal => assert!(net::connect(&to(ports.closed), CONNECT_WITHIN).await.is_err()),
        Kind::Connect => drop(net::connect(&to(ports.open), CONNECT_WITHIN).await.expect("the port is open")),
        Kind::Name => {
            // Each name is new, as the addresses of an old one are known. The port is open at 127.0.0.1 only.
            let nanos = request.time.as_nanos() as u32;
            let name = format!("127.{}.{}.{}", nanos >> 16, nanos >> 8 & 0xff, 2 + nanos % 250).into();
            assert!(net::connect(&Address::Host { name, port: ports.open }, CONNECT_WITHIN).await.is_err());
        }
        Kind::Timer => sleep(request.time).await,
        Kind::Deadline => {
            let deadline = weir_engine::deadline();
            deadline.set(Time::now().saturating_add(request.time));
            deadline.expired().await;
        }
    }
    request.done.send(request.kind).expect("the requester waits");
}

/// Keeps the processor, so that the end falls between any two instructions of the worker.
fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Sends requests of these kinds, one after the other, with pauses that let the worker fall asleep or not.
fn request_all(to: &Mailbox<Request>, kinds: &[Kind], rounds: u32, seed: u64) {
    let mut rng = Rng::new(seed);
    let (done, finished) = mpsc::channel();
    for round in 0..rounds {
        let kind = kinds[rng.below(kinds.len() as u64) as usize];
        let time = Duration::from_nanos(rng.below(200_000));
        to.send(Request { kind, time, done: done.clone() });
        let outcome = finished.recv_timeout(LOST_AFTER);
        assert!(outcome.is_ok(), "seed {seed}, round {round}: {kind:?} was lost");
        match rng.below(3) {
            0 => {}
            1 => spin(Duration::from_nanos(rng.below(100_000))),
            _ => thread::sleep(Duration::from_nanos(rng.below(400_000))),
        }
    }
}

fn no_wake_is_lost(driver: DriverChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let open = listener.local_addr().expect("bound").port();
    // The connections wait in the queue of the port, and those beyond it are taken away here.
    thread::spawn(move || listener.incoming().for_each(drop));
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let ports = Ports { open, closed: taken.local_addr().expect("bound").port() };
    drop(taken);
    let (to, inbox) = mailbox::<Request>();
    let (stop, stopped) = mailbox::<()>();
    let settings = RuntimeSettings { driver, ..RuntimeSettings::default() };
    let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
        let inbox = Rc::new(inbox);
        let served = spawn(async move {
            loop {
                inbox.receive().await.into_iter().for_each(|request| spawn(serve(request, ports)).detach());
            }
        });
        stopped.receive().await;
        drop(served);
    });
    let worker = worker.expect("the worker starts");
    let seed = 1 + driver as u64;
    for kind in KINDS {
        // Alone: no other event comes to the rescue.
        request_all(&to, &[kind], ROUNDS, seed);
    }
    thread::scope(|scope| {
        for requester in 0..REQUESTERS {
            let to = &to;
            scope.spawn(move || request_all(to, &KINDS, ROUNDS * 2, seed * 100 + requester));
        }
    });
    stop.send(());
    worker.join().expect("no panic");
}

#[test]
fn no_wake_is_lost_with_io_uring() {
    no_wake_is_lost(DriverChoice::IoUring);
}

#[test]
fn no_wake_is_lost_with_polling() {
    no_wake_is_lost(DriverChoice::Polling);
}
