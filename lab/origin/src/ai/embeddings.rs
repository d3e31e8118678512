//! Embeddings: numbers that follow from their text, as floats or as base64 of little-endian float32.

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde_json::Value;

use super::{
    error::Refusal,
    json::{Part, parts},
    request::Ask,
};
use weir_base::Rng;

/// Numbers of an embedding that names no count, as those of a small model of OpenAI.
const DIMENSIONS: u64 = 1_536;

/// Most of them.
const DIMENSIONS_MAX: u64 = 8_192;

/// Texts of one request, as OpenAI takes them.
const INPUTS_MAX: usize = 2_048;

/// Appends the reply.
///
/// # Errors
/// The input is none, or too large.
pub fn write(ask: &Ask<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    use Part::{Number, Raw, Text};
    let input = ask.fields.input.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()).unwrap_or_default();
    let inputs =
        inputs(&input).ok_or_else(|| Refusal::new(400, "", "input: a text, or a list of texts or of tokens"))?;
    let dimensions = ask.fields.dimensions.unwrap_or(DIMENSIONS);
    if !(1..=DIMENSIONS_MAX).contains(&dimensions) || inputs.len() > INPUTS_MAX {
        return Err(Refusal::new(400, "", format!("at most {INPUTS_MAX} texts, and 1 to {DIMENSIONS_MAX} dimensions")));
    }
    let is_base64 = ask.fields.encoding_format.as_deref() == Some("base64");
    out.extend_from_slice(b"{\"object\":\"list\",\"data\":[");
    for (at, text) in inputs.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        parts(
            &[Raw(comma), Raw("{\"object\":\"embedding\",\"index\":"), Number(at as u64), Raw(",\"embedding\":")],
            out,
        );
        let numbers = numbers(text, dimensions as usize);
        if is_base64 {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            parts(&[Text(&BASE64.encode(bytes))], out);
        } else {
            out.push(b'[');
            for (at, number) in numbers.iter().enumerate() {
                out.extend_from_slice(if at == 0 { b"" } else { b"," });
                // As wide as a client reads it, so that both forms are equal.
                out.extend_from_slice(f64::from(*number).to_string().as_bytes());
            }
            out.push(b']');
        }
        out.push(b'}');
    }
    let tokens = ask.prompt_tokens();
    parts(&[Raw("],\"model\":"), Text(ask.model()), Raw(",\"usage\":{\"prompt_tokens\":"), Number(tokens)], out);
    parts(&[Raw(",\"total_tokens\":"), Number(tokens), Raw("}}")], out);
    Ok(())
}

/// The texts of a request, each as one string. A list of numbers is one text.
fn inputs(input: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(tokens) if tokens.iter().all(Value::is_u64) => Some(value.to_string()),
        _ => None,
    };
    match input {
        Value::Array(values) if !values.iter().all(Value::is_u64) => values.iter().map(one).collect(),
        other => Some(vec![one(other)?]),
    }
}

/// Numbers from -1 to 1, exact in float32 as in text.
fn numbers(text: &str, count: usize) -> Vec<f32> {
    // FNV-1a: one seed for each text.
    let seed = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mut rng = Rng::new(seed);
    (0..count).map(|_| (rng.below(2_049) as f32 - 1_024.0) / 1_024.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_its_numbers_and_a_list_of_tokens_is_a_text() {
        assert_eq!(numbers("a", 3), numbers("a", 3));
        assert_ne!(numbers("a", 3), numbers("b", 3));
        assert!(numbers("a", 1_000).iter().all(|number| (-1.0..=1.0).contains(number)));
        let count = |text: &str| inputs(&serde_json::from_str(text).expect("JSON")).map(|all| all.len());
        assert_eq!(count("\"a\""), Some(1));
        assert_eq!(count("[\"a\",\"b\"]"), Some(2));
        assert_eq!(count("[1,2,3]"), Some(1));
        assert_eq!(count("[[1,2],[3]]"), Some(2));
        assert_eq!((count("7"), count("{}"), count("[\"a\",7]")), (None, None, None));
    }
}
