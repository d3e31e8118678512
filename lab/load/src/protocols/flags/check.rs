//! The check of each response. The first for a context is read and compared with the data set; the others have to have its bytes, or are
//! read too.

use std::cell::RefCell;
use std::fmt;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde_json::Value;
use weir_flagsets::{DataSet, FlagSet, Visitor};

use super::plan::context_of;
use super::same::same;
use crate::requests::{Expectation, Integrity, PlanPosition};
use crate::scenario::{CONTEXTS, Flags, FlagsEndpoint};

/// Bytes of a response that a gateway need not compress. 1 KiB: below that, many do not.
const UNCOMPRESSED_BYTES_MAX: usize = 1_024;
/// Bytes of a response behind its compression, for each byte of the data set. 4: a gateway may write flags with more fields, and no bomb.
const GROWTH_MAX: usize = 4;
/// The first bytes of gzip (RFC 1952 section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The responses of a shard.
pub(super) struct Responses {
    flags: Flags,
    first: u64,
    set: FlagSet,
    /// `features` and `segments` of the set; of the client API alone.
    wanted: [Value; 2],
    /// The last right response for each context.
    right: RefCell<Vec<Vec<u8>>>,
}

impl Responses {
    /// The responses to requests whose first context is `first`.
    pub(super) fn new(flags: &Flags, first: u64) -> Self {
        let set = FlagSet::new(flags.data);
        let wanted = match flags.endpoint {
            // The texts of a set are JSON: the tests of the sets read them.
            FlagsEndpoint::Client => {
                [set.features(), set.segments()].map(|text| serde_json::from_str(&text).unwrap_or_default())
            }
            FlagsEndpoint::Frontend => [Value::Null, Value::Null],
        };
        let count = match flags.endpoint {
            FlagsEndpoint::Client => 1,
            FlagsEndpoint::Frontend => CONTEXTS as usize,
        };
        Self { flags: flags.clone(), first, set, wanted, right: RefCell::new(vec![Vec::new(); count]) }
    }

    /// `None`: the set has something else.
    fn read(&self, context: u64, response: &[u8]) -> Option<()> {
        let text = self.uncompressed(response)?;
        let value: Value = serde_json::from_slice(text.as_deref().unwrap_or(response)).ok()?;
        let is_right = match self.flags.endpoint {
            FlagsEndpoint::Client => {
                let [features, segments] = &self.wanted;
                let found = |name: &str| value.get(name).unwrap_or(&Value::Null);
                value.get("version").is_some_and(Value::is_u64)
                    && same(found("features"), features)
                    && same(found("segments"), segments)
            }
            FlagsEndpoint::Frontend => self.has_toggles(context, &value),
        };
        is_right.then_some(())
    }

    /// The response without its coding, if it has one. `None`: another coding than the client takes, or one that is broken.
    fn uncompressed(&self, response: &[u8]) -> Option<Option<Vec<u8>>> {
        if !response.starts_with(&GZIP) {
            let may_be_plain = !self.flags.is_gzip || response.len() < UNCOMPRESSED_BYTES_MAX;
            return may_be_plain.then_some(None);
        }
        let most = body_bytes_max(self.flags.data);
        let mut text = Vec::new();
        GzDecoder::new(response).take(most as u64).read_to_end(&mut text).ok()?;
        self.flags.is_gzip.then_some(Some(text))
    }

    fn has_toggles(&self, context: u64, value: &Value) -> bool {
        let (user, plan) = FlagSet::visitor_of(context);
        let visitor = match self.flags.has_users {
            true => Visitor { user: Some(&user), plan: Some(plan) },
            false => Visitor::default(),
        };
        let Some(toggles) = value.get("toggles").and_then(Value::as_array) else { return false };
        let on = self.set.on(&visitor);
        toggles.len() == on.len()
            && toggles.iter().zip(on).all(|(toggle, flag)| {
                let variant = flag.variant(&visitor);
                let name = variant.map_or("disabled", |variant| variant.name);
                let payload = variant.map(|variant| &*variant.payload);
                toggle["name"] == *flag.name
                    && toggle["enabled"] == true
                    && toggle["impressionData"] == flag.has_impressions
                    && toggle["variant"]["name"] == *name
                    && toggle["variant"]["enabled"] == variant.is_some()
                    && toggle["variant"]["payload"]["value"].as_str() == payload
            })
    }
}

impl Expectation for Responses {
    fn check(&self, place: PlanPosition, response: &[u8]) -> Option<Integrity> {
        if self.flags.is_conditional {
            // The wire lets a 304 alone through as a value.
            return Some(if response.is_empty() { Integrity::Ok } else { Integrity::Mismatch });
        }
        if response.is_empty() {
            return Some(Integrity::Missing);
        }
        let context = context_of(&self.flags, self.first + place.at as u64);
        let mut right = self.right.borrow_mut();
        let count = right.len();
        let known = &mut right[context as usize % count];
        if *known == response {
            return Some(Integrity::Ok);
        }
        if self.read(context, response).is_none() {
            return Some(Integrity::Mismatch);
        }
        response.clone_into(known);
        Some(Integrity::Ok)
    }
}

/// Without the set, which is long.
impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").field("flags", &self.flags).field("first", &self.first).finish_non_exhaustive()
    }
}

/// Bytes of a body that a right response to a request for a set may have.
pub(super) fn body_bytes_max(data: DataSet) -> usize {
    data.bytes() * GROWTH_MAX
}
