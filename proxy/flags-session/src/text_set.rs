//! A set of texts, for lists of up to a million users.

/// The texts one behind the other, in order. Four bytes beside each.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextSet {
    text: Box<str>,
    ends: Box<[u32]>,
}

impl TextSet {
    /// The set of these texts. Those behind the first 4 GiB are left out, which no document can have.
    pub(crate) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let mut sorted: Vec<&str> = texts.collect();
        sorted.sort_unstable();
        sorted.dedup();
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(sorted.len()));
        for each in sorted {
            let Ok(end) = u32::try_from(text.len() + each.len()) else { break };
            text.push_str(each);
            ends.push(end);
        }
        Self { text: text.into(), ends: ends.into() }
    }

    /// Whether the text is one of them.
    pub(crate) fn has(&self, text: &str) -> bool {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.at(middle).cmp(text.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }

    fn at(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text.as_bytes()[start..self.ends[index] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_text_may_be_in_a_set_and_nothing_is_in_an_empty_one() {
        assert!(TextSet::new([""].into_iter()).has(""));
        assert!(!TextSet::default().has("") && !TextSet::new(["a"].into_iter()).has(""));
    }

    proptest! {
        #[test]
        fn a_set_has_what_went_in(texts in proptest::collection::vec("[a-c]{0,3}", 0..20), other in "[a-c]{0,3}") {
            let set = TextSet::new(texts.iter().map(|text| &**text));
            prop_assert!(texts.iter().all(|text| set.has(text)));
            prop_assert_eq!(set.has(&other), texts.contains(&other));
        }
    }
}
