//! Objects that the sessions of a worker share.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::sync::Arc;

use weir_analysis::postgres::{Analysis, Cache, Limits, Reading};

use crate::evidence::Proofs;
use crate::facts::{Facts, Known};
use crate::retry::Kept;
use crate::settings::MESSAGE_BYTES;
use crate::statements::{Statement, Texts};
use crate::variables::{VariableSets, Variables};

/// Texts, and sets of parameters. One per worker.
#[derive(Default)]
pub struct WorkerShare {
    pub(crate) texts: RefCell<Texts>,
    pub(crate) variables: RefCell<VariableSets>,
    /// Analyses of texts that may go to a standby, or whose time is measured. `None` before the first.
    analyses: RefCell<Option<Cache>>,
    pub(crate) proofs: Arc<Proofs>,
    /// Memory for batches under way, which sessions without one have left.
    #[expect(clippy::vec_box, reason = "a session takes its box as it is")]
    batches: RefCell<Vec<Box<Kept>>>,
}

/// Memory of batches that is kept. Default 64, some 100 KiB: as many as are under way at once on a busy worker.
const BATCHES_MAX: usize = 64;

impl WorkerShare {
    /// A share without content.
    pub fn new() -> Self {
        Self::default()
    }

    /// A share of one of several workers, which have `proofs` in common.
    pub fn with_proofs(proofs: Arc<Proofs>) -> Self {
        Self { proofs, ..Self::default() }
    }

    /// The one statement with this text and these types.
    pub(crate) fn statement(&self, rest: &[u8]) -> Rc<Statement> {
        self.texts.borrow_mut().intern(rest, || self.facts_of_statement(rest))
    }

    /// Effects of a statement; `rest` begins with its text and a NUL.
    pub(crate) fn facts_of_statement(&self, rest: &[u8]) -> Known {
        let end = memchr::memchr(0, rest).unwrap_or(rest.len());
        Facts::of(&rest[..end], MESSAGE_BYTES)
    }

    /// Effects of a text of statements. Most have no effect, which one look shows; the others come again and again.
    pub(crate) fn facts_of_query(&self, text: &[u8]) -> Known {
        if let Some(known) = Facts::quick(text, MESSAGE_BYTES) {
            return known;
        }
        if text.len() > REMEMBERED_BYTES_MAX {
            return Facts::of(text, MESSAGE_BYTES);
        }
        let statement = self.texts.borrow_mut().intern(text, || Facts::of(text, MESSAGE_BYTES));
        Known { facts: statement.facts().cloned(), is_read_only: statement.is_read_only() }
    }

    /// Memory for a batch.
    pub(crate) fn spare_batch(&self) -> Box<Kept> {
        self.batches.borrow_mut().pop().unwrap_or_default()
    }

    /// Memory that a session has no use for.
    pub(crate) fn keep_batch(&self, spare: Box<Kept>) {
        let mut batches = self.batches.borrow_mut();
        if batches.len() < BATCHES_MAX {
            batches.push(spare);
        }
    }

    /// The analysis of a text, with its comments and functions.
    pub(crate) fn analysis(&self, text: &[u8]) -> Rc<Analysis> {
        let mut cache = self.analyses.borrow_mut();
        let made = || Cache::new(Limits::default(), ANALYSES_BYTES, RandomState::new().hash_one(0));
        cache.get_or_insert_with(made).analyse(text, Reading::Unknown)
    }

    /// The one set with these parameters.
    pub(crate) fn variables(&self, variables: Variables) -> Rc<Variables> {
        self.variables.borrow_mut().intern(variables)
    }
}

/// Memory of a worker for analyses of texts that may go to a standby, or whose time is measured. Default 4 MiB: some thousands of texts.
const ANALYSES_BYTES: usize = 4 * 1024 * 1024;

/// Texts of Query up to this size are remembered with their effects. Longer ones seldom come twice.
const REMEMBERED_BYTES_MAX: usize = 1_024;
