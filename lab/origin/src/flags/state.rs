//! The state of the server: environments, tokens, faults and the ledger. All workers share it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use weir_engine::Mailbox;
use weir_flagsets::FlagSet;

use super::{
    edit::edit, environment::Environment, fault::Faults, ledger::Ledger, settings::FlagsOriginSettings, token::Token,
};

/// Broadcasts that streams may still have to send. 1,000: a stream sends all there are whenever it is woken.
const BROADCASTS_MAX: usize = 1_000;

/// The environment of a test that names none.
pub const USUAL_ENVIRONMENT: &str = "development";

/// The state behind its lock, and the workers that learn of its changes.
pub struct State {
    world: Mutex<World>,
    /// One for each worker.
    doors: Mutex<Vec<Mailbox<()>>>,
}

/// The state.
pub struct World {
    /// The flags of every environment at the start.
    pub set: FlagSet,
    history: usize,
    environments: BTreeMap<String, Environment>,
    /// The valid tokens.
    pub tokens: Vec<Token>,
    /// Replies that go wrong.
    pub faults: Faults,
    /// The requests so far.
    pub ledger: Ledger,
    /// Texts for all streams, each with its number.
    broadcasts: VecDeque<(u64, Arc<[u8]>)>,
    broadcast: u64,
    /// Streams of an earlier generation end.
    pub generation: u64,
    /// Open streams.
    pub streams: usize,
}

impl State {
    /// With the flags of the settings in each environment that a token names.
    pub fn new(settings: &FlagsOriginSettings) -> Self {
        let mut world = World {
            set: FlagSet::new(settings.data),
            history: settings.history,
            environments: BTreeMap::new(),
            tokens: settings.tokens.clone(),
            faults: Faults::default(),
            ledger: Ledger::default(),
            broadcasts: VecDeque::new(),
            broadcast: 0,
            generation: 0,
            streams: 0,
        };
        for token in &settings.tokens {
            world.environment(&token.environment);
        }
        Self { world: Mutex::new(world), doors: Mutex::default() }
    }

    /// The state for a moment.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        // Each change is whole before anything can panic.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker learns of changes from now on.
    pub fn subscribe(&self, door: Mailbox<()>) {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).push(door);
    }

    /// Changes the state, and wakes all streams.
    pub fn change<T>(&self, make: impl FnOnce(&mut World) -> T) -> T {
        let made = make(&mut self.lock());
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|door| door.send(()));
        made
    }

    /// So many edits of an environment. The revision behind them.
    pub fn edit(&self, environment: &str, count: u64) -> u64 {
        self.change(|world| {
            let environment = world.environment(environment);
            (0..count).for_each(|_| edit(environment));
            environment.revision()
        })
    }
}

impl World {
    /// An environment of this name. It is made if it is new.
    pub fn environment(&mut self, name: &str) -> &mut Environment {
        let Self { set, history, environments, .. } = self;
        environments.entry(name.to_owned()).or_insert_with(|| Environment::new(name, set, *history))
    }

    /// The valid token with this text.
    pub fn token(&self, text: &str) -> Option<&Token> {
        self.tokens.iter().find(|token| token.text == text)
    }

    /// Sends a text to all open streams.
    pub fn broadcast(&mut self, text: &[u8]) {
        self.broadcast += 1;
        self.broadcasts.push_back((self.broadcast, text.into()));
        if self.broadcasts.len() > BROADCASTS_MAX {
            self.broadcasts.pop_front();
        }
    }

    /// The number of the last broadcast.
    pub fn last_broadcast(&self) -> u64 {
        self.broadcast
    }

    /// Those behind this number.
    pub fn broadcasts_behind(&self, number: u64) -> impl Iterator<Item = &[u8]> {
        self.broadcasts.iter().filter(move |(at, _)| *at > number).map(|(_, text)| &**text)
    }

    /// The ledger as JSON.
    pub fn shown(&self) -> Vec<u8> {
        let revisions = self.environments.iter().map(|(name, environment)| (&**name, environment.revision()));
        self.ledger.to_json(revisions.collect(), self.streams)
    }
}
