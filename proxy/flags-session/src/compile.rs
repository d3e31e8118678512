//! Flags as an evaluation reads them, made once for each state.

use std::collections::HashMap;
use std::sync::Arc;

use weir_base::Rng;
use weir_flags_codec::definition::{FeatureDefinition, Variant};
use weir_flags_codec::{FeatureText, SegmentDefinition, SegmentText, Timestamp};

use crate::condition::Condition;
use crate::parent::Parent;
use crate::rule::Rule;
use crate::values::{NameCollector, Values};
use crate::variant::Variants;

/// A flag that is off because its definition has no meaning for this evaluation. Its text still passes to SDKs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The name of the flag.
    pub flag: Arc<str>,
    /// The mistake.
    pub text: &'static str,
}

/// The result of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Off,
    /// On, without a variant.
    On,
    /// On, with the variant of this place among all of the flag.
    Variant(u32),
}

/// A flag, compiled.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    /// `None`: it is off for every context.
    pub(crate) rules: Option<Rules>,
    pub(crate) parents: Box<[Parent]>,
    /// Its place among those that others depend on.
    pub(crate) memo: Option<u32>,
    /// The variants of the flag, then those of each of its strategies.
    pub(crate) variants: Box<[Variant]>,
    pub(crate) has_impression_data: bool,
}

/// The rules of a flag that is switched on.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The flag is on if one holds, or if there is none.
    rules: Box<[Rule]>,
    variants: Variants,
}

impl Rules {
    /// The result without regard to the flags that this one depends on.
    pub(crate) fn outcome(&self, values: &Values<'_>, now: Timestamp, rng: &mut Rng) -> Outcome {
        let matched = self.rules.iter().find(|rule| rule.holds(values, now, rng));
        if matched.is_none() && !self.rules.is_empty() {
            return Outcome::Off;
        }
        let own = matched.map(|rule| &rule.variants).filter(|variants| !variants.is_empty());
        own.unwrap_or(&self.variants).choose(values, rng).map_or(Outcome::On, Outcome::Variant)
    }
}

/// The work on one state.
#[derive(Debug)]
pub(crate) struct Compiler<'a> {
    /// The name of this machine, for the strategy `applicationHostname`.
    pub(crate) hostname: Option<&'a str>,
    pub(crate) names: NameCollector,
    /// Patterns so far.
    pub(crate) regexes: usize,
    segments: HashMap<i64, Result<Arc<[Condition]>, &'static str>>,
}

impl<'a> Compiler<'a> {
    /// A compiler that knows the segments of a state.
    pub(crate) fn new<'s>(hostname: Option<&'a str>, segments: impl Iterator<Item = &'s SegmentText>) -> Self {
        let mut compiler = Self { hostname, names: NameCollector::default(), regexes: 0, segments: HashMap::new() };
        for segment in segments {
            let compiled = compiler.compile_segment(segment);
            compiler.segments.insert(segment.id, compiled);
        }
        compiler
    }

    fn compile_segment(&mut self, segment: &SegmentText) -> Result<Arc<[Condition]>, &'static str> {
        let definition = SegmentDefinition::read(&segment.json).map_err(|_| "a segment has a field of another type")?;
        definition.constraints.iter().map(|constraint| Condition::compile(constraint, self)).collect()
    }

    /// The conditions of a segment.
    pub(crate) fn segment(&self, id: i64) -> Result<Arc<[Condition]>, &'static str> {
        self.segments.get(&id).cloned().unwrap_or(Err("a segment is absent"))
    }

    /// All flags of a state, in the order of their names.
    pub(crate) fn flags(&mut self, features: &[FeatureText]) -> (Vec<Flag>, Vec<Warning>) {
        let mut warnings = Vec::new();
        let mut warn = |feature: &FeatureText, text| warnings.push(Warning { flag: feature.name.clone(), text });
        let (mut flags, mut definitions) = (Vec::with_capacity(features.len()), Vec::with_capacity(features.len()));
        for feature in features {
            let definition = FeatureDefinition::read(&feature.json).unwrap_or_else(|_| {
                warn(feature, "a field has another type");
                FeatureDefinition::default()
            });
            flags.push(self.flag(feature, &definition).unwrap_or_else(|text| {
                warn(feature, text);
                Flag { has_impression_data: definition.impression_data.unwrap_or_default(), ..Flag::default() }
            }));
            definitions.push(definition.dependencies.unwrap_or_default());
        }
        let mut memos = 0;
        for (at, dependencies) in definitions.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            let find = |name: &str| features.binary_search_by(|feature| (*feature.name).cmp(name)).ok();
            // A flag that is absent, or depends on another itself, admits none.
            let parents: Option<Box<[Parent]>> = dependencies
                .iter()
                .map(|dependency| {
                    let flag = find(&dependency.feature).filter(|flag| definitions[*flag].is_empty())?;
                    let wanted = dependency.variants.as_deref().unwrap_or_default();
                    flags[flag].memo.get_or_insert_with(|| {
                        memos += 1;
                        memos - 1
                    });
                    Some(Parent {
                        flag: flag as u32,
                        shall_be_on: dependency.enabled.unwrap_or(true),
                        admitted: admitted(&flags[flag].variants, wanted),
                    })
                })
                .collect();
            match parents {
                Some(parents) => flags[at].parents = parents,
                None => flags[at].rules = None,
            }
        }
        (flags, warnings)
    }

    fn flag(&mut self, feature: &FeatureText, definition: &FeatureDefinition) -> Result<Flag, &'static str> {
        let mut all = definition.variants.clone().unwrap_or_default();
        let variants = Variants::compile(&all, 0, &feature.name, None, self);
        let mut rules = Vec::new();
        for strategy in definition.strategies.iter().flatten() {
            rules.push(Rule::compile(strategy, &feature.name, all.len() as u32, self)?);
            all.extend(strategy.variants.iter().flatten().cloned());
        }
        Ok(Flag {
            rules: definition.enabled.then(|| Rules { rules: rules.into(), variants }),
            variants: all.into(),
            has_impression_data: definition.impression_data.unwrap_or_default(),
            ..Flag::default()
        })
    }
}

/// The results of a flag that are wanted of it: a flag without a variant has the name `disabled` in its place.
fn admitted(variants: &[Variant], wanted: &[String]) -> Box<[bool]> {
    if wanted.is_empty() {
        return Box::default();
    }
    let names = std::iter::once("disabled").chain(variants.iter().map(|variant| &*variant.name));
    names.map(|name| wanted.iter().any(|other| other == name)).collect()
}
