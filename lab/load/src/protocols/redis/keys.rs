//! `[keys]`: the key space.

use std::ops::RangeInclusive;

use crate::keys::Distribution;
use crate::scenario::read::or_default;
use crate::scenario::table::Table;
use crate::scenario::{KEYS_MAX, KeySpace};

/// Bytes of a key prefix.
const PREFIX_BYTES_MAX: usize = 256;
/// Zipf exponents. At 10 nearly all requests name one key; beyond it there is nothing to measure.
const EXPONENTS: RangeInclusive<f64> = 0.01..=10.0;

/// The section, or its defaults.
pub(super) fn read(table: Table<'_>) -> Option<KeySpace> {
    let count = or_default(table.get("count"), 100_000, |node| node.whole(1..=KEYS_MAX));
    let prefix = or_default(table.get("prefix"), "key:", |node| {
        let text = node.text()?;
        if text.len() > PREFIX_BYTES_MAX {
            node.wrong("is too long", format!("use at most {PREFIX_BYTES_MAX} bytes"));
            return None;
        }
        Some(text)
    });
    let is_zipf =
        or_default(table.get("distribution"), false, |node| node.choice(&[("uniform", false), ("zipf", true)]));
    let distribution = match is_zipf {
        Some(true) => table
            .need("exponent", "0.99")
            .and_then(|node| node.number(EXPONENTS))
            .map(|exponent| Distribution::Zipf { exponent }),
        Some(false) => {
            table.refuse("exponent", "is only for distribution = \"zipf\"", "remove it, or change the distribution");
            Some(Distribution::Uniform)
        }
        None => None,
    };
    // Known, whatever the distribution.
    table.get("exponent");
    let preload = or_default(table.get("preload"), true, |node| node.boolean());
    table.finish();
    Some(KeySpace { count: count?, prefix: prefix?.to_owned(), distribution: distribution?, preload: preload? })
}
