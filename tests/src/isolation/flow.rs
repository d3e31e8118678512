//! The victim, which measures its waits, and the attack beside it.

use std::io::Result;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Caller, Transfer};

/// How long anybody waits.
pub struct Patience;

impl Patience {
    /// A victim that waits longer has an error, and has waited this long.
    pub const LIMIT: Duration = Duration::from_secs(5);

    /// The end of a wait that begins now.
    pub(super) fn deadline() -> Instant {
        Instant::now() + Self::LIMIT
    }
}

/// Between two requests of a victim.
const PACE: Duration = Duration::from_millis(2);

/// The waits and errors of a victim.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// The longest time from the request to the whole response, or to giving up.
    pub worst: Duration,
    /// Responses.
    pub served: usize,
    /// Requests without a response, or with a wrong one.
    pub failed: usize,
    /// The first few in words.
    pub errors: Vec<String>,
}

impl Waits {
    fn record(&mut self, took: Duration, outcome: Result<()>) -> bool {
        self.worst = self.worst.max(took);
        match outcome {
            Ok(()) => self.served += 1,
            Err(error) => {
                self.failed += 1;
                if self.errors.len() < 5 {
                    self.errors.push(format!("after {} ms: {error}", took.as_millis()));
                }
                return false;
            }
        }
        true
    }

    /// Two victims of the same case as one.
    #[must_use]
    pub fn join(mut self, other: Self) -> Self {
        self.worst = self.worst.max(other.worst);
        self.served += other.served;
        self.failed += other.failed;
        self.errors.extend(other.errors);
        self
    }
}

/// Makes a client again, also after an error.
type Connect = dyn Fn() -> Result<Box<dyn Caller>> + Send;

/// A client that asks for something small again and again.
pub struct Victim {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    thread: Option<JoinHandle<Waits>>,
}

impl Victim {
    /// On one connection that stays.
    pub fn steady(connect: impl Fn() -> Result<Box<dyn Caller>> + Send + 'static) -> Self {
        Self::start(Box::new(connect), false)
    }

    /// On a connection for each request.
    pub fn fresh(connect: impl Fn() -> Result<Box<dyn Caller>> + Send + 'static) -> Self {
        Self::start(Box::new(connect), true)
    }

    fn start(connect: Box<Connect>, is_fresh: bool) -> Self {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (seen, count) = (stop.clone(), served.clone());
        let thread = std::thread::spawn(move || flow(&*connect, is_fresh, &seen, &count));
        Self { stop, served, thread: Some(thread) }
    }

    /// Responses so far.
    pub fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    /// Ends it: what it felt, with the request that is under way.
    ///
    /// # Panics
    /// If it panicked.
    pub fn stop(mut self) -> Waits {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("stopped once").join().expect("a victim ends in order")
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn flow(connect: &Connect, is_fresh: bool, stop: &AtomicBool, served: &AtomicUsize) -> Waits {
    let mut waits = Waits::default();
    let mut caller: Option<Box<dyn Caller>> = None;
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let outcome = match caller.take() {
            Some(caller) => Ok(caller),
            None => connect(),
        };
        let outcome = outcome.and_then(|mut kept| {
            kept.small()?;
            caller = (!is_fresh).then_some(kept);
            Ok(())
        });
        if waits.record(asked.elapsed(), outcome) {
            served.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(PACE);
    }
    waits
}

/// Something that goes on until it is dropped.
pub struct Attack {
    stop: Arc<AtomicBool>,
    ended: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<()>>,
}

/// Between two steps of a paced transfer.
const STEP: Duration = Duration::from_millis(5);

impl Attack {
    /// Nothing.
    pub fn none() -> Self {
        Self { stop: Arc::default(), ended: Arc::default(), threads: Vec::new() }
    }

    /// Each of these is read at so many bytes a second.
    pub fn reading(transfers: Vec<Box<dyn Transfer>>, rate: usize) -> Self {
        Self::pacing(transfers, move |transfer, due| transfer.read(due), rate)
    }

    /// Each of these uploads so many bytes a second.
    pub fn writing(transfers: Vec<Box<dyn Transfer>>, rate: usize) -> Self {
        Self::pacing(transfers, |transfer, due| transfer.write(&vec![b'x'; due]).map(|()| due), rate)
    }

    fn pacing(
        transfers: Vec<Box<dyn Transfer>>,
        step: impl Fn(&mut dyn Transfer, usize) -> Result<usize> + Clone + Send + 'static,
        rate: usize,
    ) -> Self {
        let mut attack = Self::none();
        for mut transfer in transfers {
            let (stop, ended, step) = (attack.stop.clone(), attack.ended.clone(), step.clone());
            attack.threads.push(std::thread::spawn(move || {
                let (begun, mut done) = (Instant::now(), 0);
                while !stop.load(Ordering::Relaxed) {
                    let due = (begun.elapsed().as_secs_f64() * rate as f64) as usize;
                    if due > done {
                        match step(&mut *transfer, due - done) {
                            Ok(count) => done += count,
                            Err(error) => {
                                // The gateway or the end of the transfer ends it; the case may want to know.
                                ended.lock().unwrap_or_else(|held| held.into_inner()).push(error.to_string());
                                return;
                            }
                        }
                    }
                    std::thread::sleep(STEP);
                }
            }));
        }
        attack
    }

    /// How those ended that have.
    pub fn ended(&self) -> Vec<String> {
        self.ended.lock().unwrap_or_else(|held| held.into_inner()).clone()
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
