//! The documents of `POST /edge/validate`, towards clients and towards an upstream.

use serde::{Deserialize, Serialize};

use crate::DocumentError;

/// Tokens to be validated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokensToValidate {
    /// Their texts: secrets.
    pub tokens: Vec<String>,
}

/// The tokens that are valid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidatedTokens {
    /// Tokens that are absent here are not valid.
    pub tokens: Vec<ValidatedToken>,
}

/// A token with the rights that its server gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidatedToken {
    /// Its text: a secret.
    pub token: String,
    /// Its type. Servers write it in small letters, in capitals, or with one capital.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    /// Its environment.
    #[serde(default)]
    pub environment: Option<String>,
    /// Its projects.
    #[serde(default)]
    pub projects: Vec<String>,
    /// `Validated`, `Trusted`, `Unknown` or `Invalid`. Absent: validated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

impl TokensToValidate {
    /// Reads a request.
    ///
    /// # Errors
    /// It is no JSON or has no `tokens`.
    pub fn read(text: &[u8]) -> Result<Self, DocumentError> {
        Ok(serde_json::from_slice(text)?)
    }

    /// The request as bytes.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

impl ValidatedTokens {
    /// Reads a response.
    ///
    /// # Errors
    /// It is no JSON or has no `tokens`.
    pub fn read(text: &[u8]) -> Result<Self, DocumentError> {
        Ok(serde_json::from_slice(text)?)
    }

    /// The response as bytes.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_the_fields_and_the_order_of_the_peer() {
        let text = r#"{"tokens":[{"token":"*:dev.s","type":"backend","environment":"dev","projects":["*"],"status":"Validated"}]}"#;
        let tokens = ValidatedTokens::read(text.as_bytes()).expect("tokens");
        assert_eq!(String::from_utf8(tokens.to_json()).expect("UTF-8"), text);
        let short = ValidatedTokens::read(br#"{"tokens":[{"token":"s","x":1}]}"#).expect("tokens");
        assert_eq!((short.tokens[0].status.as_deref(), short.tokens[0].projects.len()), (None, 0));
        assert!(ValidatedTokens::read(b"{}").is_err());
    }

    #[test]
    fn a_request_is_written_as_it_is_read() {
        let request = TokensToValidate { tokens: vec!["a:b.c".to_owned()] };
        assert_eq!(TokensToValidate::read(&request.to_json()), Ok(request));
    }
}
