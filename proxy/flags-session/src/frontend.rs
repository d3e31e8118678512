//! Which flags are on for a context: the documents of `GET /api/frontend` and its relatives.

use std::sync::Arc;

use weir_base::Rng;
use weir_base::rng::{GOLDEN, mix};
use weir_flags_codec::definition::Payload;
use weir_flags_codec::delta::string;
use weir_flags_codec::etag::EntityTag;
use weir_flags_codec::{Context, FeatureText, Timestamp};
use xxhash_rust::xxh64::xxh64;

use crate::compile::{Flag, Outcome};
use crate::limits::TEXTS_BYTES_MAX;
use crate::snapshot::{Scope, Snapshot};
use crate::values::Values;

/// The flags of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listing {
    /// Those that are on.
    Enabled,
    /// All: `…/all`.
    All,
}

/// The results of one request, in the order of the names. Its memory serves further requests: keep one for each worker.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    /// Where the text of each stands in the snapshot.
    texts: Vec<Span>,
    bytes: usize,
    tag: u64,
    /// The results of flags that others depend on.
    memos: Vec<Option<Outcome>>,
}

impl Decisions {
    /// The entity tag of the document, a hash of the results. The same one in every process with the same flags.
    pub const fn tag(&self) -> EntityTag {
        EntityTag::Hash(self.tag)
    }

    /// The number of flags in the document.
    pub fn flag_count(&self) -> usize {
        self.texts.len()
    }

    /// Bytes of the document.
    pub const fn bytes(&self) -> usize {
        BEGINNING.len() + self.bytes + END.len()
    }

    /// Appends the document: `{"toggles":[…]}`. The snapshot must be that of [`Snapshot::decide`].
    pub fn write(&self, snapshot: &Snapshot, out: &mut Vec<u8>) {
        out.reserve(self.bytes());
        out.extend_from_slice(BEGINNING);
        for (at, span) in self.texts.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(snapshot.texts.of(*span));
        }
        out.extend_from_slice(END);
    }

    fn clear(&mut self, memos: usize, seed: u64) {
        self.texts.clear();
        self.bytes = 0;
        self.tag = seed;
        self.memos.clear();
        self.memos.resize(memos, None);
    }

    fn push(&mut self, span: Span) {
        self.bytes += span.len() + usize::from(!self.texts.is_empty());
        self.texts.push(span);
        // The place of a text stands for the text: the seed is a hash of all.
        self.tag = mix(self.tag.wrapping_add(GOLDEN) ^ u64::from(span.start));
    }
}

const BEGINNING: &[u8] = b"{\"toggles\":[";
const END: &[u8] = b"]}";

/// The values, the time and the chance of one request.
struct Evaluation<'a, 'b> {
    values: Values<'a>,
    now: Timestamp,
    rng: &'b mut Rng,
}

impl Snapshot {
    /// Decides all flags of a scope for a context. `now` stands for an absent `currentTime`; `rng` decides where chance does.
    pub fn decide(
        &self,
        scope: &Scope,
        listing: Listing,
        context: &Context<'_>,
        now: Timestamp,
        rng: &mut Rng,
        decisions: &mut Decisions,
    ) {
        decisions.clear(self.memos, self.texts.hash);
        let mut evaluation = Evaluation { values: self.names.values(context), now, rng };
        for at in 0..self.flags.len() {
            if !self.is_seen(at, scope) {
                continue;
            }
            let outcome = self.outcome(at, &mut evaluation, &mut decisions.memos);
            if outcome != Outcome::Off || listing == Listing::All {
                decisions.push(self.texts.span(at, outcome));
            }
        }
    }

    /// Decides one flag: the document of `GET /api/frontend/features/{name}` and its entity tag. `None`: no flag of the scope has the name.
    pub fn decide_one(
        &self,
        name: &str,
        scope: &Scope,
        context: &Context<'_>,
        now: Timestamp,
        rng: &mut Rng,
    ) -> Option<(&[u8], EntityTag)> {
        let at = self.find(name, scope)?;
        let mut evaluation = Evaluation { values: self.names.values(context), now, rng };
        let outcome = self.outcome(at, &mut evaluation, &mut vec![None; self.memos]);
        let text = self.texts.of(self.texts.span(at, outcome));
        Some((text, EntityTag::Hash(xxh64(text, 0))))
    }

    /// The result of a flag. Flags that others depend on depend on none, so it calls itself once at most.
    fn outcome(&self, at: usize, evaluation: &mut Evaluation<'_, '_>, memos: &mut [Option<Outcome>]) -> Outcome {
        let flag = &self.flags[at];
        let Some(rules) = &flag.rules else { return Outcome::Off };
        let memo = flag.memo.map(|memo| memo as usize);
        if let Some(outcome) = memo.and_then(|memo| memos[memo]) {
            return outcome;
        }
        let admits = flag.parents.iter().all(|parent| {
            let outcome = self.outcome(parent.flag as usize, evaluation, memos);
            parent.admits(outcome)
        });
        if !admits {
            return Outcome::Off;
        }
        let outcome = rules.outcome(&evaluation.values, evaluation.now, evaluation.rng);
        if let Some(memo) = memo {
            memos[memo] = Some(outcome);
        }
        outcome
    }
}

/// The place of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    const fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// A text for each result of each flag. A document is made of copies.
#[derive(Debug)]
pub(crate) struct Texts {
    all: Box<[u8]>,
    /// Those of each flag: off, on, then on with each variant.
    spans: Box<[Span]>,
    /// For each flag, the place of its first among the spans.
    firsts: Box<[u32]>,
    /// The hash of all texts.
    hash: u64,
}

impl Texts {
    /// The texts of all flags. A flag whose variants do not fit in [`TEXTS_BYTES_MAX`] is off, and its name is in the list that comes with them.
    pub(crate) fn new(features: &[FeatureText], flags: &mut [Flag]) -> (Self, Vec<Arc<str>>) {
        let (mut all, mut spans, mut firsts, mut too_large) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (feature, flag) in features.iter().zip(flags) {
            let (first, begun) = (spans.len(), all.len());
            firsts.push(first as u32);
            let none = (DISABLED, None);
            let variants = flag.variants.iter().map(|variant| (&*variant.name, variant.payload.as_ref()));
            for (at, variant) in [none, none].into_iter().chain(variants).enumerate() {
                let start = all.len() as u32;
                write_flag(&mut all, &feature.name, at, variant, flag.has_impression_data);
                spans.push(Span { start, end: all.len() as u32 });
                if at >= 2 && all.len() > TEXTS_BYTES_MAX {
                    spans.truncate(first + 2);
                    all.truncate(begun + spans[first].len() + spans[first + 1].len());
                    flag.rules = None;
                    too_large.push(feature.name.clone());
                    break;
                }
            }
            // Their names and payloads are in the texts.
            flag.variants = Box::default();
        }
        let hash = xxh64(&all, 0);
        (Self { all: all.into(), spans: spans.into(), firsts: firsts.into(), hash }, too_large)
    }

    fn span(&self, flag: usize, outcome: Outcome) -> Span {
        let at = match outcome {
            Outcome::Off => 0,
            Outcome::On => 1,
            Outcome::Variant(variant) => variant + 2,
        };
        self.spans[(self.firsts[flag] + at) as usize]
    }

    fn of(&self, span: Span) -> &[u8] {
        &self.all[span.start as usize..span.end as usize]
    }
}

/// The variant of a flag without one.
const DISABLED: &str = "disabled";

/// Appends the result of a flag. Clients of different times read the last member under different names.
fn write_flag(
    out: &mut Vec<u8>,
    name: &str,
    result: usize,
    (variant, payload): (&str, Option<&Payload>),
    has_impression_data: bool,
) {
    out.extend_from_slice(b"{\"name\":");
    string(out, name);
    out.extend_from_slice(if result == 0 { b",\"enabled\":false" } else { b",\"enabled\":true" });
    out.extend_from_slice(b",\"variant\":{\"name\":");
    string(out, variant);
    out.extend_from_slice(if result < 2 { b",\"enabled\":false" } else { b",\"enabled\":true" });
    if let Some(payload) = payload {
        out.extend_from_slice(b",\"payload\":{\"type\":");
        string(out, &payload.kind);
        out.extend_from_slice(b",\"value\":");
        string(out, payload.value.as_str().unwrap_or_default());
        out.push(b'}');
    }
    let impression = if has_impression_data { "true" } else { "false" };
    let end = ["},\"impressionData\":", impression, ",\"impression_data\":", impression, "}"];
    end.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
}
