//! A set of flags: made for a size, and padded to it.

use weir_base::Rng;

use crate::flag::{Flag, Rule, Segment, list};
use crate::mix;
use crate::visitor::Visitor;

/// The seed of every set.
const SEED: u64 = 29;
/// Bytes of a document besides its lists: version, query and meta as the lab's origin has them.
const FRAME_BYTES: usize = 230;
/// Words of descriptions.
const WORDS: [&str; 12] = ["shows", "the", "new", "form", "of", "a", "page", "to", "some", "users", "before", "others"];
/// Words of names.
const TOPICS: [&str; 14] = [
    "basket", "banner", "cart", "check", "feed", "header", "import", "invite", "login", "menu", "price", "report",
    "search", "upload",
];
const FORMS: [&str; 8] = ["compact", "dark", "early", "fast", "late", "new", "plain", "wide"];

/// The sets that the lab knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataSet {
    /// 5 flags in 2 kB.
    Small,
    /// 350 flags in 100 kB.
    #[default]
    Large,
    /// 5,000 flags in 1.43 MB.
    Huge,
}

impl DataSet {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Huge];

    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Huge => "huge",
        }
    }

    /// Its flags.
    #[must_use]
    pub const fn flags(self) -> usize {
        match self {
            Self::Small => 5,
            Self::Large => 350,
            Self::Huge => 5_000,
        }
    }

    /// The bytes of the document of `/api/client/features` that descriptions are padded for.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Small => 2_000,
            Self::Large => 100_000,
            // 286 for each flag, as in the large set.
            Self::Huge => 1_430_000,
        }
    }
}

/// The word.
impl std::str::FromStr for DataSet {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|set| set.word() == word);
        found.ok_or_else(|| "it is one of small, large, huge".to_owned())
    }
}

/// Flags and segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagSet {
    /// By name.
    pub flags: Vec<Flag>,
    /// By number.
    pub segments: Vec<Segment>,
}

impl FlagSet {
    /// The flags of a set.
    #[must_use]
    pub fn new(data: DataSet) -> Self {
        let mut rng = Rng::new(SEED);
        let mut made = match data {
            DataSet::Small => small(&mut rng),
            DataSet::Large | DataSet::Huge => {
                let flags = (0..data.flags()).map(|at| mixed(at, &mut rng)).collect();
                Self { flags, segments: mix::segments() }
            }
        };
        made.flags.sort_by(|one, other| one.name.cmp(&other.name));
        made.pad(data.bytes());
        made
    }

    /// The array `features` of a document.
    #[must_use]
    pub fn features(&self) -> String {
        let mut out = "[".to_owned();
        list(&mut out, &self.flags, Flag::write);
        out.push(']');
        out
    }

    /// The array `segments`.
    #[must_use]
    pub fn segments(&self) -> String {
        let mut out = "[".to_owned();
        list(&mut out, &self.segments, Segment::write);
        out.push(']');
        out
    }

    /// The flags that are on for a visitor, by name.
    #[must_use]
    pub fn on(&self, visitor: &Visitor<'_>) -> Vec<&Flag> {
        self.flags.iter().filter(|flag| flag.is_on(visitor, &self.segments)).collect()
    }

    /// The body of a reply of `/api/frontend` for a visitor, as Unleash Edge writes it.
    #[must_use]
    pub fn toggles(&self, visitor: &Visitor<'_>) -> String {
        let mut out = "{\"toggles\":[".to_owned();
        list(&mut out, &self.on(visitor), |flag, out| flag.write_toggle(visitor, out));
        out.push_str("]}");
        out
    }

    /// A visitor of the sets: the number decides about its user and its plan.
    #[must_use]
    pub fn visitor_of(number: u64) -> (String, &'static str) {
        let mut rng = Rng::new(SEED ^ number);
        let user = mix::user(&mut rng);
        (user, mix::PLAN_NAMES[rng.below(mix::PLAN_NAMES.len() as u64) as usize])
    }

    /// Gives the descriptions the bytes that the document lacks.
    fn pad(&mut self, bytes: usize) {
        let missing = bytes.saturating_sub(FRAME_BYTES + self.features().len() + self.segments().len());
        let filling: String = WORDS.iter().copied().cycle().flat_map(|word| [word, " "]).take(400).collect();
        let mut descriptions: Vec<&mut String> =
            self.flags.iter_mut().filter_map(|flag| flag.description.as_mut()).collect();
        let count = descriptions.len();
        for (at, description) in descriptions.iter_mut().enumerate() {
            let share = missing * (at + 1) / count - missing * at / count;
            // ASCII: every place is a boundary.
            filling[..share.min(filling.len())].clone_into(description);
        }
    }
}

/// The flag at `at` of a set with the mix.
fn mixed(at: usize, rng: &mut Rng) -> Flag {
    let place = at % mix::ROUND;
    let rule = mix::rule(place, rng);
    let variants = if mix::has_variants(place) { mix::variants(rng) } else { Vec::new() };
    let mut word = |words: &[&'static str]| words[rng.below(words.len() as u64) as usize];
    Flag {
        name: format!("{}-{}-flag{at:04}", word(&TOPICS), word(&FORMS)),
        project: mix::PROJECTS[at % mix::PROJECTS.len()],
        is_enabled: rule.is_some(),
        has_impressions: at.is_multiple_of(10),
        // Every second one: with more, the frame of the members alone would be too large.
        description: at.is_multiple_of(2).then(String::new),
        rule,
        variants,
    }
}

/// Two flags that are on for everyone, and three that look at the context.
fn small(rng: &mut Rng) -> FlagSet {
    let rules = [
        ("flag-1", Rule::Always),
        ("flag-2", Rule::Rollout(100)),
        ("flag-3", Rule::Rollout(50)),
        ("flag-4", mix::users(rng)),
        ("flag-5", Rule::Plans(mix::plans(1))),
    ];
    let flags = rules.into_iter().map(|(name, rule)| Flag {
        name: name.to_owned(),
        project: mix::PROJECTS[0],
        is_enabled: true,
        has_impressions: false,
        description: Some(String::new()),
        rule: Some(rule),
        variants: Vec::new(),
    });
    FlagSet { flags: flags.collect(), segments: Vec::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn sets_have_their_flags_their_sizes_and_names_of_their_own() {
        for (data, tolerance) in [(DataSet::Small, 100), (DataSet::Large, 2_000), (DataSet::Huge, 20_000)] {
            let set = FlagSet::new(data);
            assert_eq!(set.flags.len(), data.flags());
            let bytes = FRAME_BYTES + set.features().len() + set.segments().len();
            assert!(bytes.abs_diff(data.bytes()) <= tolerance, "{}: {bytes}", data.word());
            assert!(set.flags.is_sorted_by(|one, next| one.name < next.name), "{}", data.word());
            let features: Value = serde_json::from_str(&set.features()).expect("JSON");
            assert_eq!(features.as_array().map(Vec::len), Some(data.flags()));
            assert!(serde_json::from_str::<Value>(&set.segments()).is_ok());
            assert_eq!(set, FlagSet::new(data), "the seed is fixed");
            assert_eq!(data.word().parse(), Ok(data));
        }
        let large = FlagSet::new(DataSet::Large);
        assert_eq!(large.flags.iter().filter(|flag| flag.rule.is_some()).count(), 200);
        assert_eq!((large.segments.len(), large.flags.iter().filter(|flag| flag.variants.len() == 2).count()), (8, 70));
        assert!("tiny".parse::<DataSet>().is_err());
    }

    #[test]
    fn without_a_user_the_share_of_the_mix_is_on_and_no_variant_is_left_to_chance() {
        let nothing = Visitor::default();
        for (data, wanted) in [(DataSet::Small, 2), (DataSet::Large, 95)] {
            let set = FlagSet::new(data);
            assert_eq!(set.on(&nothing).len(), wanted, "{}", data.word());
            assert!(set.on(&nothing).iter().all(|flag| flag.variants.is_empty()));
        }
    }

    #[test]
    fn toggles_of_a_visitor_without_a_user_have_the_bytes_of_the_seeds() {
        for (data, bytes, tolerance) in [(DataSet::Small, 260, 10), (DataSet::Large, 13_200, 300)] {
            let toggles = FlagSet::new(data).toggles(&Visitor::default());
            assert!(toggles.len().abs_diff(bytes) <= tolerance, "{}: {}", data.word(), toggles.len());
            let value: Value = serde_json::from_str(&toggles).expect("JSON");
            assert_eq!(value["toggles"][0]["variant"]["name"], "disabled");
        }
        let (user, plan) = FlagSet::visitor_of(1);
        let visitor = Visitor { user: Some(&user), plan: Some(plan) };
        let value: Value = serde_json::from_str(&FlagSet::new(DataSet::Large).toggles(&visitor)).expect("JSON");
        let toggles = value["toggles"].as_array().expect("an array");
        assert!(toggles.iter().any(|toggle| toggle["variant"]["payload"]["type"] == "string"), "{value}");
    }

    #[test]
    fn users_and_plans_switch_flags_on() {
        let set = FlagSet::new(DataSet::Large);
        let mut seen = std::collections::HashSet::new();
        for number in 0..200 {
            let (user, plan) = FlagSet::visitor_of(number);
            let visitor = Visitor { user: Some(&user), plan: Some(plan) };
            let on = set.on(&visitor);
            assert!((100..=200).contains(&on.len()), "{}", on.len());
            seen.extend(on.iter().map(|flag| &*flag.name));
            seen.extend(on.iter().filter_map(|flag| flag.variant(&visitor)).map(|variant| variant.name));
        }
        assert!(seen.contains("control") && seen.contains("treatment"));
        let is_seen = |rule: fn(&Rule) -> bool| {
            set.flags.iter().any(|flag| flag.rule.as_ref().is_some_and(rule) && seen.contains(&*flag.name))
        };
        assert!(is_seen(|rule| matches!(rule, Rule::Plans(_))) && is_seen(|rule| matches!(rule, Rule::Segment(_))));
        assert!(is_seen(|rule| matches!(rule, Rule::Users(_))) && is_seen(|rule| matches!(rule, Rule::Rollout(..100))));
    }
}
