//! The meaning of a flag and of a segment: the fields that an evaluation reads.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{DocumentError, OwnedScalar};

/// A flag. Fields that no evaluation reads are absent here: the text of the flag has them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FeatureDefinition {
    /// Whether the flag is switched on in this environment.
    pub enabled: bool,
    /// Whether clients shall report each evaluation.
    #[serde(default)]
    pub impression_data: Option<bool>,
    /// The flag is on if one of them holds, or if there is none.
    #[serde(default)]
    pub strategies: Option<Vec<Strategy>>,
    /// Variants of the flag, for strategies without variants of their own.
    #[serde(default)]
    pub variants: Option<Vec<Variant>>,
    /// Flags on which this one depends.
    #[serde(default)]
    pub dependencies: Option<Vec<Dependency>>,
}

/// A condition for a flag.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// Its kind, for example `flexibleRollout`.
    pub name: String,
    /// Its settings.
    #[serde(default)]
    pub parameters: Option<BTreeMap<String, OwnedScalar>>,
    /// All must hold.
    #[serde(default)]
    pub constraints: Option<Vec<Constraint>>,
    /// Segments whose constraints must hold, too.
    #[serde(default)]
    pub segments: Option<Vec<i64>>,
    /// Variants of a flag that is on because of this strategy.
    #[serde(default)]
    pub variants: Option<Vec<Variant>>,
}

impl Strategy {
    /// A setting.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.as_ref()?.get(name)?.as_str()
    }
}

/// A condition for one value of the context.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Constraint {
    /// The name of the value.
    pub context_name: String,
    /// The comparison, for example `STR_CONTAINS`.
    pub operator: String,
    /// The operand of operators with several.
    #[serde(default)]
    pub values: Option<Vec<OwnedScalar>>,
    /// The operand of other operators.
    #[serde(default)]
    pub value: Option<OwnedScalar>,
    /// For `STR_*` and `REGEX`.
    #[serde(default)]
    pub case_insensitive: Option<bool>,
    /// The constraint holds if the comparison does not.
    #[serde(default)]
    pub inverted: Option<bool>,
}

/// One of several forms of a flag that is on.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// The name.
    pub name: String,
    /// Its share, in parts of the sum of all weights.
    #[serde(default)]
    pub weight: Option<i64>,
    /// The value of the context that decides.
    #[serde(default)]
    pub stickiness: Option<String>,
    /// Data for the client.
    #[serde(default)]
    pub payload: Option<Payload>,
    /// Values that select this variant whatever the weights.
    #[serde(default)]
    pub overrides: Option<Vec<Override>>,
}

/// Data of a variant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Payload {
    /// `string`, `json`, `csv` or `number`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The data, always as a text.
    pub value: OwnedScalar,
}

/// Values of the context that select a variant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// The name of the value.
    pub context_name: String,
    /// The values.
    pub values: Vec<OwnedScalar>,
}

/// A condition for another flag.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Dependency {
    /// The name of the other flag.
    pub feature: String,
    /// Whether it shall be on. `None`: on.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// The variant that it shall have is one of these, unless there are none.
    #[serde(default)]
    pub variants: Option<Vec<String>>,
}

/// A set of constraints that strategies share.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct SegmentDefinition {
    /// All must hold.
    #[serde(default)]
    pub constraints: Vec<Constraint>,
}

impl FeatureDefinition {
    /// Reads the text of a flag.
    ///
    /// # Errors
    /// A field has another type. The flag is then off, and its text still passes.
    pub fn read(json: &str) -> Result<Self, DocumentError> {
        Ok(serde_json::from_str(json)?)
    }
}

impl SegmentDefinition {
    /// Reads the text of a segment.
    ///
    /// # Errors
    /// A field has another type. Flags that use the segment are then off.
    pub fn read(json: &str) -> Result<Self, DocumentError> {
        Ok(serde_json::from_str(json)?)
    }
}
