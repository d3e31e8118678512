//! Prices: the cost of a request, in integers.
//!
//! A price is in millionths of the currency per million tokens: 2.50 per million tokens is 2,500,000. Tokens times price is
//! then a number of 10^-12, which 128 bits hold for any request; the sum over the classes is rounded up once, to millionths.
//! So the cost of a request is one number, and sums of costs are exact.

use std::{collections::HashMap, fmt};

use crate::{amount::Tokens, glob::Glob};

/// Rows of one table. Default 4,096.
pub const ROWS_MAX: usize = 4_096;

/// Prices of the classes of tokens. `None`: as the class that it is a part of, `input` or `output`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Tokens of the prompt.
    pub input: u64,
    /// Those that the cache of the provider held.
    pub cached_input: Option<u64>,
    /// Those that the provider wrote to its cache.
    pub cache_write: Option<u64>,
    /// Those that are audio.
    pub audio_input: Option<u64>,
    /// Tokens of the output.
    pub output: u64,
    /// Those for reasoning.
    pub reasoning: Option<u64>,
    /// Those that are audio.
    pub audio_output: Option<u64>,
}

impl Price {
    /// The cost of these tokens in millionths, rounded up; at most `u64::MAX`.
    pub fn cost(&self, tokens: &Tokens) -> u64 {
        let parts = [
            (tokens.cached_input, self.cached_input.unwrap_or(self.input)),
            (tokens.cache_write, self.cache_write.unwrap_or(self.input)),
            (tokens.audio_input, self.audio_input.unwrap_or(self.input)),
            (tokens.reasoning, self.reasoning.unwrap_or(self.output)),
            (tokens.audio_output, self.audio_output.unwrap_or(self.output)),
            (rest(tokens.input, [tokens.cached_input, tokens.cache_write, tokens.audio_input]), self.input),
            (rest(tokens.output, [tokens.reasoning, tokens.audio_output, 0]), self.output),
        ];
        let product = |(count, price): (u64, u64)| u128::from(count) * u128::from(price);
        let sum = parts.into_iter().map(product).fold(0, u128::saturating_add);
        u64::try_from(sum.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }
}

/// Tokens of a class that are in none of its parts.
fn rest(all: u64, parts: [u64; 3]) -> u64 {
    parts.into_iter().fold(all, u64::saturating_sub)
}

/// A row of a table.
#[derive(Clone, Debug)]
pub struct PriceRow {
    /// Models that the row is for.
    pub models: Glob,
    /// Service tier of the request that it is for. `None`: each tier without a row of its own.
    pub tier: Option<Box<str>>,
    /// The price.
    pub price: Price,
}

/// A cost, and whether the table knew the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// In millionths.
    pub money: u64,
    /// The model has a row. If not, the cost is that of [`PriceTable::unknown`], or zero, and the record says so.
    pub is_priced: bool,
}

/// A table of prices with its version. Immutable; a reload makes another one.
///
/// The most specific row applies, wherever it stands: an exact name first, then the pattern with the most literal
/// characters; among equals a row for the tier first, then the earlier one.
#[derive(Clone, Debug, Default)]
pub struct PriceTable {
    version: u32,
    exact: HashMap<Box<str>, Vec<PriceRow>>,
    /// The most specific first.
    patterns: Vec<PriceRow>,
    unknown: Option<Price>,
}

impl PriceTable {
    /// A table. `version` is written to each usage record; `unknown` is the price of models without a row.
    ///
    /// # Errors
    /// More than [`ROWS_MAX`] rows, or two for the same models and tier.
    pub fn new(version: u32, rows: Vec<PriceRow>, unknown: Option<Price>) -> Result<Self, PriceError> {
        if rows.len() > ROWS_MAX {
            return Err(PriceError::TooManyRows(rows.len()));
        }
        let mut exact: HashMap<Box<str>, Vec<PriceRow>> = HashMap::new();
        let mut patterns: Vec<PriceRow> = Vec::new();
        for row in rows {
            let others =
                if row.models.is_exact() { exact.entry(row.models.text().into()).or_default() } else { &mut patterns };
            if others.iter().any(|other| other.models == row.models && other.tier == row.tier) {
                return Err(PriceError::Twice(row.models.text().to_owned()));
            }
            others.push(row);
        }
        exact.values_mut().for_each(|rows| rows.sort_by_key(|row| row.tier.is_none()));
        patterns.sort_by_key(|row| (std::cmp::Reverse(row.models.literals()), row.tier.is_none()));
        Ok(Self { version, exact, patterns, unknown })
    }

    /// The version that it was made with.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The price of a model in a tier; `None`: no row is for it.
    pub fn price(&self, model: &str, tier: Option<&str>) -> Option<&Price> {
        let fits = |row: &&PriceRow| row.tier.is_none() || row.tier.as_deref() == tier;
        let exact = self.exact.get(model).and_then(|rows| rows.iter().find(fits));
        let row = exact.or_else(|| self.patterns.iter().filter(fits).find(|row| row.models.matches(model)));
        row.map(|row| &row.price)
    }

    /// The cost of a request.
    pub fn cost(&self, model: &str, tier: Option<&str>, tokens: &Tokens) -> Cost {
        let price = self.price(model, tier);
        let money = price.or(self.unknown.as_ref()).map_or(0, |price| price.cost(tokens));
        Cost { money, is_priced: price.is_some() }
    }

    /// The price of models without a row, if the table has one.
    pub fn unknown(&self) -> Option<&Price> {
        self.unknown.as_ref()
    }
}

/// Why there is no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriceError {
    /// So many.
    TooManyRows(usize),
    /// Two rows are for these models and the same tier.
    Twice(String),
}

impl fmt::Display for PriceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyRows(count) => write!(f, "{count} prices; the most is {ROWS_MAX}"),
            Self::Twice(models) => write!(f, "`{models}` has two prices for the same tier: remove one"),
        }
    }
}

impl std::error::Error for PriceError {}

#[cfg(test)]
mod tests;
