//! Edits over time: changes of flags and segments that follow from their number alone.
//!
//! | number, modulo 4 | change |
//! |---|---|
//! | 0, 1 | the next flag is switched on or off |
//! | 2 | a flag `lab-edit-N` is new |
//! | 3 | it is removed, and if there are segments the next one changes |

use serde_json::Value;
use weir_flags_codec::{DeltaChange, FeatureText, SegmentText};

use super::environment::Environment;

/// Begins the names of flags that edits create.
const CREATED: &str = "lab-edit-";

/// Makes the next edit of an environment: one change, or two.
pub fn edit(environment: &mut Environment) {
    let number = environment.edits;
    environment.edits += 1;
    match number % 4 {
        2 => {
            let name = format!("{CREATED}{}", number / 4);
            let json = format!(
                "{{\"name\":\"{name}\",\"type\":\"release\",\"enabled\":true,\"stale\":false,\"impressionData\":false,\
                 \"project\":\"default\",\"strategies\":[{{\"name\":\"default\",\"constraints\":[],\"parameters\":{{}}}}],\
                 \"variants\":[]}}"
            );
            let feature = FeatureText { name: name.into(), project: "default".into(), json: json.into() };
            environment.apply(DeltaChange::FeatureUpdated(feature));
        }
        3 => {
            let name = format!("{CREATED}{}", number / 4).into();
            environment.apply(DeltaChange::FeatureRemoved { name, project: "default".into() });
            if let Some(segment) = changed_segment(environment, number / 4) {
                environment.apply(DeltaChange::SegmentUpdated(segment));
            }
        }
        turn => {
            if let Some(feature) = switched(environment, 2 * (number / 4) + turn) {
                environment.apply(DeltaChange::FeatureUpdated(feature));
            }
        }
    }
}

/// The flag at `turn` of all, in turn, with the opposite state.
fn switched(environment: &Environment, turn: u64) -> Option<FeatureText> {
    let features = environment.features();
    let feature = features.get(usize::try_from(turn).ok()? % features.len().max(1))?;
    let mut value: Value = serde_json::from_str(&feature.json).ok()?;
    let enabled = value.get_mut("enabled")?;
    *enabled = Value::Bool(enabled.as_bool() != Some(true));
    Some(FeatureText { json: value.to_string().into(), ..feature.clone() })
}

/// The segment at `turn` of all, in turn, with another name.
fn changed_segment(environment: &Environment, turn: u64) -> Option<SegmentText> {
    let segments = environment.segments();
    let segment = segments.get(usize::try_from(turn).ok()? % segments.len().max(1))?;
    let mut value: Value = serde_json::from_str(&segment.json).ok()?;
    value.as_object_mut()?.insert("name".to_owned(), format!("segment-{}-{turn}", segment.id).into());
    Some(SegmentText { json: value.to_string().into(), ..segment.clone() })
}

#[cfg(test)]
mod tests {
    use weir_flagsets::{DataSet, FlagSet};

    use super::*;

    #[test]
    fn edits_switch_flags_create_and_remove_some_and_change_segments() {
        let mut environment = Environment::new("e", &FlagSet::new(DataSet::Large), 20);
        let before: Vec<FeatureText> = environment.features().to_vec();
        (0..2).for_each(|_| edit(&mut environment));
        let changed = environment.features().iter().zip(&before).filter(|(one, other)| one != other);
        assert_eq!(changed.count(), 2, "two flags are switched");
        edit(&mut environment);
        assert_eq!((environment.features().len(), environment.revision()), (351, 4));
        let first = environment.segments()[0].clone();
        edit(&mut environment);
        assert_eq!((environment.features().len(), environment.revision()), (350, 6), "removed, and a segment changed");
        assert_ne!(environment.segments()[0], first);
    }

    #[test]
    fn an_environment_without_flags_can_be_edited() {
        let mut environment = Environment::new("e", &FlagSet::new(DataSet::Small), 20);
        environment.replace(weir_flags_codec::FeaturesDocument::default());
        (0..8).for_each(|_| edit(&mut environment));
        assert!(environment.features().is_empty() && environment.revision() > 2);
    }
}
