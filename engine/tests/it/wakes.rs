//! No wake is lost, on both drivers: a worker that sleeps at its sockets hears other threads, its operations and its timers.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use weir_base::{rng::Rng, time::Time};
use weir_engine::{
    Inbox, Mailbox, Worker, mailbox, net, run_blocking,
    settings::{Address, DriverChoice, RuntimeSettings},
    sleep, spawn, yield_now,
};

/// A wake that takes longer is lost: nothing else would end the sleep.
const LOST_AFTER: Duration = Duration::from_secs(10);
const CONNECT_WITHIN: Duration = Duration::from_secs(60);
/// Rounds of one kind of wake alone.
const ROUNDS: u32 = 400;
/// Requesters that take turns with all kinds at the same time.
const REQUESTERS: u64 = 4;

/// Tasks that one thread wakes in one go: fewer than the queue of a worker holds.
const BURST: usize = 2_000;

/// Names that were resolved so far.
static NAMES: AtomicU32 = AtomicU32::new(0);

/// The event that ends a wait of the worker.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A message of another thread.
    Message,
    /// Work on a helper thread.
    Work,
    /// Work on a helper thread that panics, perhaps while other work waits for its place.
    Panic,
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

const KINDS: [Kind; 8] =
    [Kind::Message, Kind::Work, Kind::Panic, Kind::Refusal, Kind::Connect, Kind::Name, Kind::Timer, Kind::Deadline];

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
        Kind::Panic => {
            // Without the message of the hook.
            let outcome: io::Result<()> = run_blocking(|| std::panic::resume_unwind(Box::new("on purpose"))).await;
            assert!(outcome.is_err());
        }
        Kind::Refusal => assert!(net::connect(&to(ports.closed), CONNECT_WITHIN).await.is_err()),
        Kind::Connect => drop(net::connect(&to(ports.open), CONNECT_WITHIN).await.expect("the port is open")),
        Kind::Name => {
            // Each name is new, as the addresses of an old one are known. The port is open at 127.0.0.1 only.
            let number = NAMES.fetch_add(1, Ordering::Relaxed);
            let name = format!("127.{}.{}.{}", 1 + (number >> 16), number >> 8 & 0xff, number & 0xff).into();
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

/// Many tasks are woken at the same time by another thread, and each of them runs.
fn a_burst_wakes_every_task(driver: DriverChoice) {
    let (mailboxes, inboxes): (Vec<_>, Vec<_>) = (0..BURST).map(|_| mailbox::<()>()).unzip();
    let (done, finished) = mpsc::channel();
    let (ready, all_wait) = mpsc::channel();
    let settings = RuntimeSettings { driver, ..RuntimeSettings::default() };
    let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
        let wait = |inbox: Inbox<()>| {
            let done = done.clone();
            spawn(async move {
                inbox.receive().await;
                done.send(()).expect("the test waits");
            })
        };
        let all: Vec<_> = inboxes.into_iter().map(wait).collect();
        // The tasks before it have looked at their inboxes.
        spawn(async move { ready.send(()).expect("the test waits") }).detach();
        for task in all {
            task.await.expect("no panic");
        }
    });
    let worker = worker.expect("the worker starts");
    all_wait.recv_timeout(LOST_AFTER).expect("the tasks wait");
    mailboxes.iter().for_each(|mailbox| mailbox.send(()));
    for number in 0..BURST {
        assert!(finished.recv_timeout(LOST_AFTER).is_ok(), "only {number} tasks ran");
    }
    worker.join().expect("no panic");
}

/// The kernel goes on with a connect whose socket is open: of a connect that timed out nothing may be left.
fn a_connect_that_timed_out_is_closed(driver: DriverChoice) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    listener.listen(1).expect("it listens");
    let address = listener.local_addr().expect("bound").as_socket().expect("an IP address");
    // They fill the queue, and the kernel drops further requests.
    let _queued = [(); 2].map(|()| TcpStream::connect(address).expect("there is room for two"));
    let (done, finished) = mpsc::channel();
    let settings = RuntimeSettings { driver, ..RuntimeSettings::default() };
    let (stop, stopped) = mailbox::<()>();
    let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
        let outcome = net::connect(&Address::Socket(address), Duration::from_millis(1_000)).await;
        done.send(outcome.map(drop).map_err(|error| error.kind())).expect("the test waits");
        stopped.receive().await;
    });
    let worker = worker.expect("the worker starts");
    let begun = Instant::now();
    while connects_under_way(address.port()) == 0 {
        assert!(begun.elapsed() < LOST_AFTER, "no connect is seen");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(finished.recv_timeout(LOST_AFTER), Ok(Err(io::ErrorKind::TimedOut)));
    let begun = Instant::now();
    while connects_under_way(address.port()) > 0 {
        assert!(begun.elapsed() < LOST_AFTER, "the connect goes on");
        thread::sleep(Duration::from_millis(10));
    }
    stop.send(());
    worker.join().expect("no panic");
}

/// Sockets of this network namespace that have sent their request to the port and wait (`SYN_SENT`, state 2 of `/proc/net/tcp`).
fn connects_under_way(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let peer = format!(":{port:04X} 02 ");
    table.lines().filter(|line| line.contains(&peer)).count()
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

/// A task that is dropped with its worker may start another one.
fn a_task_may_be_started_by_the_drop_of_another(driver: DriverChoice) {
    struct Starts(mpsc::Sender<()>);
    impl Drop for Starts {
        fn drop(&mut self) {
            let dropped = self.0.clone();
            spawn(async move { drop(dropped) }).detach();
        }
    }
    let (sender, dropped) = mpsc::channel();
    let settings = RuntimeSettings { driver, ..RuntimeSettings::default() };
    let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
        let starts = Starts(sender);
        spawn(async move {
            let _starts = starts;
            std::future::pending::<()>().await;
        })
        .detach();
        yield_now().await;
    });
    worker.expect("the worker starts").join().expect("no panic");
    assert_eq!(dropped.recv_timeout(LOST_AFTER), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_worker_ends_with_tasks_that_start_others() {
    a_task_may_be_started_by_the_drop_of_another(DriverChoice::IoUring);
    a_task_may_be_started_by_the_drop_of_another(DriverChoice::Polling);
}

#[test]
fn no_wake_is_lost_with_io_uring() {
    no_wake_is_lost(DriverChoice::IoUring);
    a_burst_wakes_every_task(DriverChoice::IoUring);
}

#[test]
fn no_wake_is_lost_with_polling() {
    no_wake_is_lost(DriverChoice::Polling);
    a_burst_wakes_every_task(DriverChoice::Polling);
}

#[test]
fn a_connect_that_timed_out_is_closed_on_both_drivers() {
    a_connect_that_timed_out_is_closed(DriverChoice::IoUring);
    a_connect_that_timed_out_is_closed(DriverChoice::Polling);
}
