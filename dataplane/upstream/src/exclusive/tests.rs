//! Two pools on one thread, as two workers have them: who has a connection when the quota is used up. The carriers are scripted.

use std::{net::TcpListener, sync::mpsc};

use weir_engine::{
    Worker,
    settings::{Address, DriverChoice, RuntimeSettings},
};
use weir_telemetry::{EventLog, Level, Registry, log::log_ring};

use super::*;
use crate::{
    NoMultiplexer,
    acquiring::Acquired,
    draining::{DRAINING_MAX, DRAINING_MIN},
    health::ConnectionProbe,
};

/// Longest wait of a test.
const WAIT: Duration = Duration::from_secs(20);

/// The connections of one pool, in the order in which they were made.
#[derive(Clone, Default)]
struct Script {
    made: Rc<RefCell<Vec<Rc<Connection>>>>,
    /// A connection is made only while this is false.
    is_held: Rc<Cell<bool>>,
    /// Exchanges that a new one takes; 0: none any more.
    exchanges_max: u32,
}

struct Connection {
    exchanges_max: Cell<Option<u32>>,
    watch: Cell<Option<std::task::Waker>>,
    is_cut: Cell<bool>,
    _stream: Stream,
}

impl Connection {
    fn set_exchanges_max(&self, exchanges_max: Option<u32>) {
        self.exchanges_max.set(exchanges_max);
        self.watch.take().expect("one that waits watches").wake();
    }
}

impl Carrier for Rc<Connection> {
    fn exchanges_max(&self) -> Option<u32> {
        self.exchanges_max.get()
    }

    fn watch(&self, waker: &std::task::Waker) {
        self.watch.set(Some(waker.clone()));
    }

    fn cut(&self) {
        self.is_cut.set(true);
    }
}

impl Multiplexer for Script {
    type Carrier = Rc<Connection>;

    async fn begin(&self, stream: Stream) -> io::Result<Rc<Connection>> {
        while self.is_held.get() {
            weir_engine::sleep(Duration::from_millis(1)).await;
        }
        let exchanges_max = Cell::new(Some(self.exchanges_max).filter(|most| *most > 0));
        let made = Connection { exchanges_max, watch: Cell::default(), is_cut: Cell::default(), _stream: stream };
        self.made.borrow_mut().push(Rc::new(made));
        Ok(self.made.borrow().last().expect("one").clone())
    }
}

/// An endpoint that takes connections, and its quota.
struct Server {
    address: Address,
    share: Arc<EndpointShare>,
    limit: u32,
}

impl Server {
    fn pool<M: Multiplexer>(&self, multiplexer: Option<M>, wait: Duration) -> Rc<ExclusiveUpstream<M>> {
        let settings = UpstreamSettings {
            health: None,
            lane_wait_timeout: wait,
            ..UpstreamSettings::new("one", vec![self.address.clone()])
        };
        let pool = PoolSettings { connections_max: self.limit, ..PoolSettings::default() };
        let lanes = ExclusiveSettings { pool, ..ExclusiveSettings::default() };
        let events = EventLog::new(log_ring(8, None).0);
        let metrics = UpstreamMetrics::new(&Registry::with_level(Level::Full).core(0), events, "one".into());
        let shares = std::slice::from_ref(&self.share);
        ExclusiveUpstream::new(settings, lanes, multiplexer, shares, metrics, None::<ConnectionProbe>).expect("a pool")
    }

    /// A pool whose connections carry `exchanges_max` exchanges each.
    fn carriers(&self, exchanges_max: u32, wait: Duration) -> (Script, Rc<ExclusiveUpstream<Script>>) {
        let script = Script { exchanges_max, ..Script::default() };
        (script.clone(), self.pool(Some(script), wait))
    }
}

/// Runs `test` on a worker, with a server to which there may be `limit` connections.
fn on_worker<F: Future<Output = ()> + 'static>(limit: u32, test: impl FnOnce(Server) -> F + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = Address::Socket(listener.local_addr().expect("bound"));
    let settings = RuntimeSettings { driver: DriverChoice::Polling, ..RuntimeSettings::default() };
    // The panic of a task does not end its worker.
    let (done, is_done) = mpsc::channel();
    let worker = Worker::start(0, None, &settings, Arc::default(), move || async move {
        test(Server { address, share: Arc::default(), limit }).await;
        done.send(()).expect("the test waits");
    });
    is_done.recv_timeout(3 * WAIT).expect("the worker comes to the end of the test");
    worker.expect("the worker starts").join().expect("no panic");
}

/// Waits for the lane of an exchange that must have one by now.
async fn lane<M: Multiplexer + 'static>(acquiring: Acquiring<M>) -> ExclusiveLane<M> {
    match timeout(WAIT, acquiring).await.expect("it is forgotten") {
        Ok(lane) => lane,
        Err((refusal, _)) => panic!("{refusal:?}"),
    }
}

/// Begins; true if it waits.
async fn waits<M: Multiplexer + 'static>(acquiring: &mut Acquiring<M>) -> bool {
    poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut *acquiring).poll(context).is_pending())).await
}

fn any<M: Multiplexer>(pool: &Rc<ExclusiveUpstream<M>>) -> Acquiring<M> {
    pool.acquire(SelectionCriteria::default())
}

#[test]
fn a_worker_whose_connections_drain_has_another_one_and_the_number_is_bounded() {
    on_worker(1, async |server| {
        let (script, pool) = server.carriers(8, Duration::from_millis(50));
        let mut lanes = Vec::new();
        for number in 0..=DRAINING_MAX {
            if let Some(last) = script.made.borrow().last() {
                last.exchanges_max.set(None);
            }
            lanes.push(lane(any(&pool)).await);
            assert_eq!(script.made.borrow().len(), number + 1, "the one before takes no exchanges any more");
        }
        let made = script.made.borrow().clone();
        made.last().expect("several").exchanges_max.set(None);
        let refused: Acquired<_> = any(&pool).await;
        assert!(matches!(refused, Err((Refusal::QueueTimeout, _))), "all of them drain, and not for long");
        let member = pool.member(0);
        assert!(!member.draining.makes_room(turn::now()) && !made[0].is_cut.get());
        assert!(member.draining.makes_room(turn::now().saturating_add(DRAINING_MIN)));
        let cut: Vec<_> = made.iter().map(|one| one.is_cut.get()).collect();
        assert_eq!((cut[0], cut.iter().filter(|is_cut| **is_cut).count()), (true, 1), "the oldest alone");
        drop(lanes);
        assert_eq!(member.room.open(), 0);
        lane(any(&pool)).await;
    });
}

/// Lanes on `count` connections that take no further exchange.
async fn draining(pool: &Rc<ExclusiveUpstream<Script>>, count: usize) -> Vec<ExclusiveLane<Script>> {
    let mut lanes = Vec::new();
    for _ in 0..count {
        lanes.push(lane(any(pool)).await);
    }
    lanes
}

/// Polls once, at a time at which all that drain may be cut; true if it waits.
async fn waits_late(acquiring: &mut Acquiring<Script>) -> bool {
    turn::set(turn::now().saturating_add(DRAINING_MIN));
    waits(acquiring).await
}

#[test]
fn no_connection_is_cut_while_the_quota_has_a_permit() {
    on_worker(100, async |server| {
        let (script, pool) = server.carriers(0, WAIT);
        let lanes = draining(&pool, DRAINING_MAX + 1).await;
        script.is_held.set(true);
        let (mut first, mut second) = (any(&pool), any(&pool));
        assert!(waits(&mut first).await && waits(&mut second).await, "the second waits for the attempt of the first");
        script.is_held.set(false);
        let first = lane(first).await;
        assert!(waits_late(&mut second).await, "it connects");
        let second = lane(second).await;
        assert_eq!(script.made.borrow().len(), lanes.len() + 2);
        assert!(script.made.borrow().iter().all(|one| !one.is_cut.get()), "89 permits are free");
        drop((lanes, first, second));
    });
}

#[test]
fn a_permit_that_comes_back_is_taken_before_a_connection_is_cut() {
    const LIMIT: usize = DRAINING_MAX + 2;
    on_worker(LIMIT as u32, async |server| {
        let (script, pool) = server.carriers(0, WAIT);
        let mut lanes = draining(&pool, LIMIT).await;
        let mut next = any(&pool);
        assert!(waits(&mut next).await, "the quota is used up, and all have drained for a moment");
        drop(lanes.pop());
        assert!(waits_late(&mut next).await, "it connects");
        let next = lane(next).await;
        assert_eq!(script.made.borrow().len(), LIMIT + 1);
        assert!(script.made.borrow().iter().all(|one| !one.is_cut.get()), "one permit was free");
        drop((lanes, next));
    });
}

#[test]
fn the_first_that_waits_sees_that_a_connection_drains_or_takes_more() {
    on_worker(1, async |server| {
        let (script, pool) = server.carriers(1, WAIT);
        let first = lane(any(&pool)).await;
        let mut second = any(&pool);
        assert!(waits(&mut second).await, "the only connection is full");
        let made = script.made.borrow()[0].clone();
        made.set_exchanges_max(Some(2));
        let second = lane(second).await;
        let mut third = any(&pool);
        assert!(waits(&mut third).await && script.made.borrow().len() == 1);
        made.set_exchanges_max(Some(0));
        assert!(waits(&mut third).await && script.made.borrow().len() == 1, "it takes none just now, and may later");
        made.set_exchanges_max(None);
        let third = lane(third).await;
        assert_eq!(script.made.borrow().len(), 2, "a connection for the third");
        drop((first, second, third));
    });
}

#[test]
fn the_only_connection_of_a_worker_stays_and_another_one_goes_to_one_that_waits() {
    on_worker(2, async |server| {
        let ((_, a), (_, b)) = (server.carriers(1, WAIT), server.carriers(1, WAIT));
        for lane in [lane(any(&a)).await, lane(any(&a)).await] {
            lane.give_back(Remains::Nothing);
        }
        let member = a.member(0);
        assert_eq!(member.room.open(), 2);
        let first = lane(any(&b)).await;
        let mut second = any(&b);
        assert!(waits(&mut second).await, "one connection beyond the limit is enough");
        let one_is_left = async {
            while member.room.open() > 1 {
                weir_engine::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(WAIT, one_is_left).await.expect("one goes");
        a.give_way(&member);
        assert_eq!(member.carriers.borrow().len(), 1, "each may have one");
        drop(first);
        lane(second).await;
    });
}

#[test]
fn a_connection_that_is_over_gives_its_permit_back_with_its_last_exchange() {
    on_worker(1, async |server| {
        let (script, pool) = server.carriers(8, WAIT);
        let lanes = [lane(any(&pool)).await, lane(any(&pool)).await];
        script.made.borrow()[0].exchanges_max.set(None);
        for lane in lanes {
            assert!(server.share.quota.is_used_up());
            lane.give_back(Remains::Nothing);
        }
        assert!(!server.share.quota.is_used_up());
    });
}

#[test]
fn a_connection_that_was_being_made_when_its_upstream_was_replaced_does_not_stay() {
    on_worker(1, async |server| {
        let (script, pool) = server.carriers(8, WAIT);
        script.is_held.set(true);
        let mut begun = any(&pool);
        assert!(waits(&mut begun).await);
        pool.retire();
        script.is_held.set(false);
        lane(begun).await.give_back(Remains::Nothing);
        assert!(!server.share.quota.is_used_up(), "nobody else can have it");
    });
}

#[test]
fn an_exchange_whose_permit_went_to_an_older_one_closes_another_connection_at_rest() {
    on_worker(3, async |server| {
        let (a, b) = (server.pool(None::<NoMultiplexer>, WAIT), server.pool(None::<NoMultiplexer>, WAIT));
        let mut resting = Vec::new();
        for _ in 0..3 {
            resting.push(lane(any(&b)).await);
        }
        resting.into_iter().for_each(|lane| lane.give_back(Remains::PerhapsBody));
        let member = b.member(0);
        let (mut older, mut own) = (any(&a), any(&b));
        assert!(waits(&mut older).await && waits(&mut own).await);
        assert_eq!(member.idle.borrow().len(), 2, "one has given way");
        assert!(waits(&mut older).await && waits(&mut own).await, "both connect");
        assert_eq!(
            member.idle.borrow().len(),
            1,
            "the older has the place of the first, so a second one has given way"
        );
        let (older, own) = (lane(older).await, lane(own).await);
        assert!(!older.is_reused() && !own.is_reused());
        drop((older, own));
    });
}
