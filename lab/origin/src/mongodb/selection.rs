//! The documents that a filter selects, as numbers: nothing is looked through.

use std::collections::VecDeque;

use weir_base::rng::mix;
use weir_mongodb_codec::bson::{Document, Kind, Value};

use super::failure::{Failure, code};

/// Values of `$in`. 100,000, as many as a batch of writes has.
const LISTED_MAX: usize = 100_000;

/// Documents in the order in which a cursor returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// Consecutive ones.
    Run { next: i64, left: u64, is_falling: bool },
    /// These.
    Listed(VecDeque<i64>),
}

impl Selection {
    /// The documents of a collection of `count` that a filter selects. Conditions about `_id` select by number; of a filter without
    /// any, one document follows, always the same one.
    pub fn of(filter: Option<Document<'_>>, count: u64) -> Result<Self, Failure> {
        let all = Self::between(1, count as i64);
        let Some(filter) = filter else { return Ok(all) };
        let Some(id) = filter.get(b"_id")? else {
            let is_empty = filter.first_element()?.is_none();
            return Ok(if is_empty { all } else { Self::hashed(filter, count) });
        };
        if let Some(number) = id.as_integer() {
            return Ok(Self::one(number, count));
        }
        match id.kind {
            Kind::Document => Self::in_range(id, count),
            _ => Ok(Self::hashed(filter, count)),
        }
    }

    fn one(number: i64, count: u64) -> Self {
        let is_there = number >= 1 && number as u64 <= count;
        Self::Run { next: number, left: u64::from(is_there), is_falling: false }
    }

    fn between(first: i64, last: i64) -> Self {
        let left = if last < first { 0 } else { (last - first) as u64 + 1 };
        Self::Run { next: first, left, is_falling: false }
    }

    fn hashed(filter: Document<'_>, count: u64) -> Self {
        if count == 0 {
            return Self::between(1, 0);
        }
        let hash = filter.bytes().iter().fold(0, |hash: u64, byte| mix(hash ^ u64::from(*byte)));
        Self::one((hash % count) as i64 + 1, count)
    }

    /// Operators about `_id`.
    fn in_range(id: Value<'_>, count: u64) -> Result<Self, Failure> {
        let (mut first, mut last) = (1, count as i64);
        for element in id.as_document()?.into_iter().flat_map(Document::elements) {
            let element = element?;
            let number = element.value.as_integer();
            match (element.name, number) {
                (b"$in", _) => return Self::listed(element.value, count),
                (b"$eq", Some(number)) => (first, last) = (first.max(number), last.min(number)),
                (b"$gte", Some(number)) => first = first.max(number),
                (b"$gt", Some(number)) => first = first.max(number.saturating_add(1)),
                (b"$lte", Some(number)) => last = last.min(number),
                (b"$lt", Some(number)) => last = last.min(number.saturating_sub(1)),
                (name, _) => {
                    let text = format!("weir origin: no {} of _id here", String::from_utf8_lossy(name));
                    return Err(Failure::new(code::BAD_VALUE, text));
                }
            }
        }
        Ok(Self::between(first, last))
    }

    fn listed(value: Value<'_>, count: u64) -> Result<Self, Failure> {
        let Some(array) = value.as_document()?.filter(|_| value.kind == Kind::Array) else {
            return Err(Failure::new(code::BAD_VALUE, "$in needs an array"));
        };
        let mut listed = VecDeque::new();
        for element in array.elements() {
            let number = element?.value.as_integer();
            listed.extend(number.filter(|number| *number >= 1 && *number as u64 <= count));
            if listed.len() > LISTED_MAX {
                return Err(Failure::new(code::BAD_VALUE, format!("weir origin: $in has at most {LISTED_MAX} values")));
            }
        }
        Ok(Self::Listed(listed))
    }

    /// Documents that are left.
    pub fn left(&self) -> u64 {
        match self {
            Self::Run { left, .. } => *left,
            Self::Listed(all) => all.len() as u64,
        }
    }

    /// The other order.
    pub fn reversed(self) -> Self {
        match self {
            Self::Run { next, left, is_falling } => {
                let span = left.saturating_sub(1) as i64;
                Self::Run { next: if is_falling { next - span } else { next + span }, left, is_falling: !is_falling }
            }
            Self::Listed(all) => Self::Listed(all.into_iter().rev().collect()),
        }
    }

    /// Without the first `count`.
    pub fn omit(&mut self, count: u64) {
        match self {
            Self::Run { next, left, is_falling } => {
                let count = count.min(*left);
                *left -= count;
                *next += if *is_falling { -(count as i64) } else { count as i64 };
            }
            Self::Listed(all) => drop(all.drain(..all.len().min(count as usize))),
        }
    }

    /// The first `count`, which are then gone from here.
    pub fn split(&mut self, count: u64) -> Self {
        let mut first = self.clone();
        first.limit(count);
        self.omit(count);
        first
    }

    /// At most `count`.
    pub fn limit(&mut self, count: u64) {
        match self {
            Self::Run { left, .. } => *left = (*left).min(count),
            Self::Listed(all) => all.truncate(count as usize),
        }
    }
}

impl Iterator for Selection {
    type Item = i64;

    fn next(&mut self) -> Option<i64> {
        match self {
            Self::Run { next, left, is_falling } => {
                *left = left.checked_sub(1)?;
                let number = *next;
                *next += if *is_falling { -1 } else { 1 };
                Some(number)
            }
            Self::Listed(all) => all.pop_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_mongodb_codec::bson::{Writer, document};

    use super::*;

    fn selected(write: impl FnOnce(&mut Writer<'_>)) -> Vec<i64> {
        let mut bytes = Vec::new();
        document(&mut bytes, write);
        Selection::of(Some(Document::read(&bytes).expect("a document")), 10).expect("a selection").collect()
    }

    #[test]
    fn conditions_about_the_number_select_by_it() {
        assert_eq!(selected(|filter| filter.int32("_id", 7)), [7]);
        assert_eq!(selected(|filter| filter.double("_id", 7.0)), [7]);
        assert_eq!(selected(|filter| filter.int64("_id", 11)), Vec::<i64>::new());
        assert_eq!(selected(|_| {}).len(), 10);
        let range = |filter: &mut Writer<'_>| {
            filter.document("_id", |id| {
                id.int32("$gt", 3);
                id.int64("$lte", 5);
            });
        };
        assert_eq!(selected(range), [4, 5]);
        let listed = |filter: &mut Writer<'_>| {
            filter.document("_id", |id| id.array("$in", [9, 2, 99], |array, name, it| array.int32(name, it)));
        };
        assert_eq!(selected(listed), [9, 2]);
    }

    #[test]
    fn another_filter_selects_one_document_that_follows_from_it() {
        let found = selected(|filter| filter.string("name", "x"));
        assert!(found.len() == 1 && (1..=10).contains(&found[0]));
        assert_eq!(selected(|filter| filter.string("name", "x")), found);
    }

    #[test]
    fn order_skip_and_limit_keep_what_they_should() {
        let mut down = Selection::of(None, 10).expect("all").reversed();
        down.omit(2);
        down.limit(3);
        assert_eq!((down.left(), down.collect::<Vec<_>>()), (3, vec![8, 7, 6]));
        let back = Selection::between(1, 3).reversed().reversed();
        assert_eq!(back.collect::<Vec<_>>(), [1, 2, 3]);
    }
}
