//! The file of a gateway without an upstream, in both of its shapes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use crate::features::DEFAULT_PROJECT;
use crate::{DocumentError, FeatureText, FeaturesDocument};

/// A flag in the short shape.
#[derive(Deserialize)]
struct ShortFeature {
    enabled: bool,
    #[serde(default)]
    variant: Option<String>,
}

impl FeaturesDocument {
    /// Reads a whole document, or an object with a short form of each flag: `{"name":{"enabled":true,"variant":"red"}}`. A short one belongs to
    /// the project [`DEFAULT_PROJECT`] and has the strategy `default`, and its variant has the whole weight.
    ///
    /// # Errors
    /// It is no JSON, or has neither shape. The error is that of the shape to which it is closer.
    pub fn read_bootstrap(text: &[u8]) -> Result<Self, DocumentError> {
        let whole = match Self::read(text) {
            Err(error) if error.is_json => error,
            other => return other,
        };
        let Ok(short) = serde_json::from_slice::<BTreeMap<String, ShortFeature>>(text) else { return Err(whole) };
        let features = short.into_iter().map(|(name, feature)| feature.spelled_out(&name));
        Ok(Self { version: 2, features: features.collect(), ..Self::default() })
    }
}

impl ShortFeature {
    /// The flag as a server would write it.
    fn spelled_out(self, name: &str) -> FeatureText {
        let variant = |name| json!({"name": name, "weight": 1000, "weightType": "fix", "stickiness": "default"});
        let variants: Vec<_> = self.variant.into_iter().map(variant).collect();
        let strategy = json!({"name": "default", "constraints": [], "parameters": {}, "variants": []});
        let json = json!({
            "name": name,
            "enabled": self.enabled,
            "project": DEFAULT_PROJECT,
            "strategies": [strategy],
            "variants": variants,
        });
        FeatureText { name: name.into(), project: DEFAULT_PROJECT.into(), json: json.to_string().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FeatureDefinition;

    #[test]
    fn both_shapes_are_read() {
        let whole = br#"{"version":1,"features":[{"name":"a","enabled":true}]}"#;
        assert_eq!(FeaturesDocument::read_bootstrap(whole), FeaturesDocument::read(whole));
        let short = br#"{"b":{"enabled":true,"variant":"red"},"features":{"enabled":false}}"#;
        let document = FeaturesDocument::read_bootstrap(short).expect("a document");
        assert_eq!(document.features.iter().map(|feature| &*feature.name).collect::<Vec<_>>(), ["b", "features"]);
        let definition = FeatureDefinition::read(&document.features[0].json).expect("a definition");
        let variant = &definition.variants.expect("variants")[0];
        assert_eq!((definition.enabled, &*variant.name, variant.weight), (true, "red", Some(1000)));
        assert_eq!(definition.strategies.map(|strategies| strategies.len()), Some(1));
        assert!(FeaturesDocument::read_bootstrap(b"{}").expect("no flags").features.is_empty());
    }

    #[test]
    fn f7_a_file_of_another_shape_is_refused() {
        for text in ["", "[]", r#"{"a":{}}"#, r#"{"a":{"enabled":true}"#, r#"{"features":[{}]}"#, r#"{"a":true}"#] {
            assert!(FeaturesDocument::read_bootstrap(text.as_bytes()).is_err(), "{text}");
        }
    }
}
