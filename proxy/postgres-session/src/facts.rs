//! Effects of a text on the session in which it runs: the analysis, reduced to what a session keeps until the server replies.

use std::rc::Rc;

use weir_analysis::postgres::{Analysis, Effect, Limits, Value, analyse, quick};

use crate::statements::PREFIX;

/// The effects of a text. A text without any has no `Facts`.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The effects of each statement, in order.
    statements: Vec<Vec<Effect>>,
    /// For each PREPARE, in order.
    prepares: Vec<Prepare>,
    /// Nothing is known of the text.
    pub(crate) is_opaque: bool,
    /// It names prepared statements of SQL.
    pub(crate) names_statements: bool,
    /// One of these names may be that of a statement of the gateway.
    pub(crate) names_reserved: Option<Reserved>,
    /// It begins a transaction block.
    pub(crate) begins_block: bool,
    /// Names of statements after it cannot be known before its reply.
    pub(crate) is_barrier: bool,
    /// It gives parameters their defaults.
    pub(crate) is_reset: bool,
    /// It notifies.
    pub(crate) notifies: bool,
    /// It changes the session, or may.
    pub(crate) has_effects: bool,
    /// If it listens: what a server gets in its place.
    pub(crate) server_text: Option<Rc<[u8]>>,
}

/// The statement in place of each LISTEN: it needs the same rights and transaction, and does nothing.
const NO_LISTEN: &[u8] = b"UNLISTEN weir_none";

/// A text that listens, without that; `None`: it does not listen.
fn without_listen(text: &[u8], analysis: &Analysis) -> Option<Rc<[u8]>> {
    let (mut out, mut at) = (Vec::new(), 0);
    for statement in &analysis.statements {
        if statement.effects.iter().any(|effect| matches!(effect, Effect::Listen(_))) {
            out.extend_from_slice(text.get(at..statement.range.start as usize)?);
            out.extend_from_slice(NO_LISTEN);
            at = statement.range.end as usize;
        }
    }
    (at > 0).then(|| [&out, text.get(at..).unwrap_or_default()].concat().into())
}

/// SQL's PREPARE.
#[derive(Clone, Debug)]
pub(crate) struct Prepare {
    /// The whole statement.
    pub(crate) text: Rc<[u8]>,
    /// Effects of each EXECUTE of it; `None`: there are none.
    pub(crate) effects: Option<Rc<Facts>>,
}

/// A use of a name that only the gateway gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// EXECUTE, DEALLOCATE: the client has no such statement.
    Used,
    /// PREPARE: it may not take the name.
    Taken,
}

/// The use of such a name among effects.
fn reserved(effects: &mut dyn Iterator<Item = &Effect>) -> Option<Reserved> {
    let uses = effects.filter_map(|effect| match effect {
        Effect::Prepare { name, .. } if name.starts_with(PREFIX) => Some(Reserved::Taken),
        Effect::Execute { name, .. } | Effect::Deallocate(name) if name.starts_with(PREFIX) => Some(Reserved::Used),
        _ => None,
    });
    uses.max_by_key(|found| *found == Reserved::Taken)
}

/// Facts of a text before it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// Effects; `None`: there are none.
    pub(crate) facts: Option<Rc<Facts>>,
    /// It writes nothing, as far as its text shows.
    pub(crate) is_read_only: bool,
}

/// Effects that only the transaction feels, which the status byte and the command tags show. Those with the tag of another effect are
/// none: the tag must be foreseen (`tag.rs`).
fn is_plain(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Commit { .. }
            | Effect::Rollback { .. }
            | Effect::FinishPrepared
            | Effect::SetConstraints
            | Effect::Notify
            | Effect::CreateTemp { drops_on_commit: true }
            | Effect::DiscardPlans
            | Effect::PrepareTransaction
    )
}

impl Facts {
    /// One look at a text shows that it has no effects.
    #[inline]
    pub(crate) fn quick(text: &[u8], bytes_max: usize) -> Option<Known> {
        let limits = Limits { bytes_max, ..Limits::default() };
        quick(text, &limits).map(|quick| Known { facts: None, is_read_only: quick.is_read_only })
    }

    /// The effects of `text`.
    pub(crate) fn of(text: &[u8], bytes_max: usize) -> Known {
        if let Some(known) = Self::quick(text, bytes_max) {
            return known;
        }
        let limits = Limits { bytes_max, ..Limits::default() };
        Self::from_analysis(text, analyse(text, &limits), &limits)
    }

    /// The effects of the statement behind AS. PostgreSQL refuses a further PREPARE there: none is followed, as each would be a level of
    /// this recursion and read the rest of the text again.
    fn of_body(body: &[u8], limits: &Limits) -> Option<Rc<Self>> {
        if Self::quick(body, limits.bytes_max).is_some() {
            return None;
        }
        let analysis = analyse(body, limits);
        let mut effects = analysis.statements.iter().flat_map(|statement| &statement.effects);
        if effects.any(|effect| matches!(effect, Effect::Prepare { .. })) {
            return Some(Self::opaque());
        }
        Self::from_analysis(body, analysis, limits).facts
    }

    fn from_analysis(text: &[u8], analysis: Analysis, limits: &Limits) -> Known {
        let is_read_only = analysis.is_read_only();
        let is_opaque = !analysis.is_whole;
        let mut prepares = Vec::new();
        let server_text = without_listen(text, &analysis);
        let mut statements = Vec::with_capacity(analysis.statements.len());
        for statement in analysis.statements {
            for effect in &statement.effects {
                if let Effect::Prepare { body, .. } = effect {
                    let effects = Self::of_body(body.of(text), limits);
                    prepares.push(Prepare { text: statement.range.of(text).into(), effects });
                }
            }
            statements.push(statement.effects);
        }
        let all = || statements.iter().flatten();
        let has_effects = is_opaque || !all().all(is_plain);
        let notifies = all().any(|effect| matches!(effect, Effect::Notify));
        if !has_effects && !notifies {
            return Known { facts: None, is_read_only };
        }
        let names_statements = all()
            .any(|effect| matches!(effect, Effect::Prepare { .. } | Effect::Execute { .. } | Effect::Deallocate(_)));
        let names_reserved = reserved(&mut all());
        let begins_block = all().any(|effect| matches!(effect, Effect::Begin { .. }));
        let is_barrier = is_opaque || all().any(|effect| matches!(effect, Effect::DeallocateAll | Effect::DiscardAll));
        let is_reset = all().any(|effect| {
            let is_default = matches!(effect, Effect::Set { value: Value::Default, .. });
            is_default || matches!(effect, Effect::Reset(_) | Effect::ResetAll | Effect::SetRole { .. })
        });
        let facts = Self {
            statements,
            prepares,
            is_opaque,
            names_statements,
            names_reserved,
            begins_block,
            is_barrier,
            is_reset,
            notifies,
            has_effects,
            server_text,
        };
        Known { facts: Some(Rc::new(facts)), is_read_only }
    }

    /// A text that was not read.
    pub(crate) fn opaque() -> Rc<Self> {
        Rc::new(Self {
            statements: Vec::new(),
            prepares: Vec::new(),
            is_opaque: true,
            names_statements: false,
            names_reserved: None,
            begins_block: false,
            is_barrier: true,
            is_reset: false,
            notifies: false,
            has_effects: true,
            server_text: None,
        })
    }

    /// The effects of a statement, by its place in the text.
    pub(crate) fn effects(&self, step: u32) -> &[Effect] {
        self.statements.get(step as usize).map_or(&[], Vec::as_slice)
    }

    /// All effects, in the order of the text.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Effect> {
        self.statements.iter().flatten()
    }

    /// The only effect of the only statement.
    pub(crate) fn only(&self) -> Option<&Effect> {
        match &self.statements[..] {
            [statement] => match &statement[..] {
                [effect] => Some(effect),
                _ => None,
            },
            _ => None,
        }
    }

    /// All PREPAREs, in the order of the text.
    pub(crate) fn prepares(&self) -> &[Prepare] {
        &self.prepares
    }

    /// The PREPARE with this name.
    pub(crate) fn prepare(&self, wanted: &[u8]) -> Option<&Prepare> {
        let names = self.all().filter_map(|effect| match effect {
            Effect::Prepare { name, .. } => Some(name),
            _ => None,
        });
        names.zip(&self.prepares).filter(|(name, _)| ***name == *wanted).last().map(|(_, prepare)| prepare)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Each level would be a frame of the stack, and a copy of the rest of the text.
    #[test]
    fn p18_a_prepare_within_a_prepare_is_not_followed() {
        for level in ["PREPARE a ", "PREPARE a AS "] {
            let text = level.repeat(128 * 1024 / level.len());
            let begun = Instant::now();
            let Some(facts) = Facts::of(text.as_bytes(), text.len()).facts else { continue };
            assert!(begun.elapsed() < Duration::from_secs(5), "{level}");
            let bodies = facts.prepares().iter().filter_map(|prepare| prepare.effects.as_ref());
            assert!(bodies.inspect(|body| assert!(body.is_opaque)).all(|body| body.prepares().is_empty()));
        }
        let once = Facts::of(b"PREPARE a AS SELECT pg_advisory_lock(1)", 1_000).facts.expect("it prepares");
        assert!(once.prepares()[0].effects.as_ref().is_some_and(|body| !body.is_opaque));
    }
}
