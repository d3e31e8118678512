//! A constraint as an evaluation reads it.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};
use semver::Version;
use weir_flags_codec::definition::Constraint;
use weir_flags_codec::{ContextField, OwnedScalar, Timestamp};

use crate::compile::Compiler;
use crate::limits::{REGEX_CACHE_BYTES_MAX, REGEX_PROGRAM_BYTES_MAX, REGEXES_MAX};
use crate::network::Network;
use crate::text_set::TextSet;
use crate::values::{Slot, Values};

/// A condition for one value.
#[derive(Debug)]
pub(crate) struct Condition {
    slot: Slot,
    is_inverted: bool,
    test: Test,
}

#[derive(Debug)]
enum Test {
    In(TextSet),
    NotIn(TextSet),
    Text {
        place: Place,
        texts: Box<[Box<str>]>,
        ignores_case: bool,
    },
    Number(Order, f64),
    Date(Order, Timestamp),
    Version(Order, Version),
    /// `None`: the pattern is none, or too large. No value matches.
    Regex(Option<Box<Regex>>),
    Networks(Box<[Network]>),
}

/// Where a text stands in a value.
#[derive(Clone, Copy, Debug)]
enum Place {
    Start,
    End,
    Anywhere,
}

/// How a value compares with an operand.
#[derive(Clone, Copy, Debug)]
enum Order {
    Equal,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

impl Order {
    fn holds(self, ordering: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::Less => ordering.is_lt(),
            Self::AtMost => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::AtLeast => ordering.is_ge(),
        }
    }
}

impl Condition {
    /// The condition of a constraint.
    ///
    /// # Errors
    /// The operator is not known, or its operand is no number, date or version. The text names the mistake.
    pub(crate) fn compile(constraint: &Constraint, compiler: &mut Compiler<'_>) -> Result<Self, &'static str> {
        let ignores_case = constraint.case_insensitive.unwrap_or_default();
        let values = || constraint.values.iter().flatten().filter_map(OwnedScalar::as_str);
        let value = || constraint.value.as_ref().and_then(OwnedScalar::as_str);
        let text = |place| Test::Text {
            place,
            texts: values()
                .map(|text| if ignores_case { text.to_lowercase() } else { text.to_owned() }.into())
                .collect(),
            ignores_case,
        };
        let number = |order| match value().and_then(|text| text.trim().parse().ok()) {
            Some(number) if f64::is_finite(number) => Ok(Test::Number(order, number)),
            _ => Err("the operand of a constraint is no number"),
        };
        let date = |order| match value().and_then(Timestamp::parse) {
            Some(date) => Ok(Test::Date(order, date)),
            None => Err("the operand of a constraint is no date"),
        };
        let version = |order| match value().and_then(|text| Version::parse(text.trim()).ok()) {
            Some(version) => Ok(Test::Version(order, version)),
            None => Err("the operand of a constraint is no semantic version"),
        };
        let test = match &*constraint.operator {
            "IN" => Test::In(TextSet::new(values())),
            "NOT_IN" => Test::NotIn(TextSet::new(values())),
            "STR_STARTS_WITH" => text(Place::Start),
            "STR_ENDS_WITH" => text(Place::End),
            "STR_CONTAINS" => text(Place::Anywhere),
            "NUM_EQ" => number(Order::Equal)?,
            "NUM_LT" => number(Order::Less)?,
            "NUM_LTE" => number(Order::AtMost)?,
            "NUM_GT" => number(Order::Greater)?,
            "NUM_GTE" => number(Order::AtLeast)?,
            "DATE_BEFORE" => date(Order::Less)?,
            "DATE_AFTER" => date(Order::Greater)?,
            "SEMVER_EQ" => version(Order::Equal)?,
            "SEMVER_LT" => version(Order::Less)?,
            "SEMVER_LTE" => version(Order::AtMost)?,
            "SEMVER_GT" => version(Order::Greater)?,
            "SEMVER_GTE" => version(Order::AtLeast)?,
            "REGEX" => Test::Regex(regex(value().unwrap_or_default(), ignores_case, compiler)?),
            "IN_CIDR" => Test::Networks(values().filter_map(Network::parse).collect()),
            _ => return Err("the operator of a constraint is not known"),
        };
        let slot = compiler.names.slot(&constraint.context_name);
        Ok(Self { slot, is_inverted: constraint.inverted.unwrap_or_default(), test })
    }

    /// Whether it holds. `now` stands for an absent `currentTime`.
    pub(crate) fn holds(&self, values: &Values<'_>, now: Timestamp) -> bool {
        self.test.passes(self.slot, values, now) != self.is_inverted
    }
}

impl Test {
    fn passes(&self, slot: Slot, values: &Values<'_>, now: Timestamp) -> bool {
        let Some(value) = values.get(slot) else {
            return match self {
                Self::NotIn(_) => true,
                Self::Date(order, date) if slot == Slot::of_field(ContextField::CurrentTime) => {
                    order.holds(now.cmp(date))
                }
                _ => false,
            };
        };
        match self {
            Self::In(texts) => texts.has(value),
            Self::NotIn(texts) => !texts.has(value),
            Self::Text { place, texts, ignores_case: false } => texts.iter().any(|text| place.has(value, text)),
            Self::Text { place, texts, ignores_case: true } => {
                let value = lowercase(value);
                texts.iter().any(|text| place.has(&value, text))
            }
            Self::Number(order, operand) => value.parse().is_ok_and(|number| compares(*order, number, *operand)),
            Self::Date(order, date) => Timestamp::parse(value).is_some_and(|time| order.holds(time.cmp(date))),
            Self::Version(order, operand) => {
                Version::parse(value).is_ok_and(|version| order.holds(version.cmp_precedence(operand)))
            }
            Self::Regex(regex) => regex.as_ref().is_some_and(|regex| regex.is_match(value)),
            Self::Networks(networks) => Network::any_has(networks, value),
        }
    }
}

impl Place {
    fn has(self, value: &str, text: &str) -> bool {
        match self {
            Self::Start => value.starts_with(text),
            Self::End => value.ends_with(text),
            Self::Anywhere => memchr::memmem::find(value.as_bytes(), text.as_bytes()).is_some(),
        }
    }
}

/// Numbers that differ by less than the precision are equal.
fn compares(order: Order, number: f64, operand: f64) -> bool {
    match order {
        Order::Equal => (number - operand).abs() < f64::EPSILON,
        _ => number.partial_cmp(&operand).is_some_and(|ordering| order.holds(ordering)),
    }
}

fn lowercase(value: &str) -> Cow<'_, str> {
    match value.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
        true => Cow::Owned(value.to_lowercase()),
        false => Cow::Borrowed(value),
    }
}

fn regex(pattern: &str, ignores_case: bool, compiler: &mut Compiler<'_>) -> Result<Option<Box<Regex>>, &'static str> {
    compiler.regexes += 1;
    if compiler.regexes > REGEXES_MAX {
        return Err("the environment has more regexes than it may have");
    }
    let compiled = RegexBuilder::new(pattern)
        .case_insensitive(ignores_case)
        .size_limit(REGEX_PROGRAM_BYTES_MAX)
        .dfa_size_limit(REGEX_CACHE_BYTES_MAX)
        .build();
    Ok(compiled.ok().map(Box::new))
}
