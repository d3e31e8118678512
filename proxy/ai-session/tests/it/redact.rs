//! Edits in place of the texts of a prompt: the facts lead to the bytes of each text, and a body stays what it is around them.

use proptest::prelude::*;
use serde_json::Value;
use weir_ai_session::Splice;
use weir_analysis::ai::{Endpoint, Facts, Role, Span, Wanted, read};
use weir_json_codec::Decoded;

/// Texts of one body.
const TEXTS: usize = 5;

const ENDPOINTS: [Endpoint; 4] = [Endpoint::Chat, Endpoint::Responses, Endpoint::Completions, Endpoint::Messages];

/// A body of an endpoint with these strings, quoted, in their order.
fn body(endpoint: Endpoint, [a, b, c, d, e]: [&str; TEXTS]) -> String {
    match endpoint {
        Endpoint::Chat => format!(
            r#"{{"model":"m","messages":[{{"role":"system","content":{a}}},{{"content":[{{"type":"text","text":{b}}},
            {{"type":"image_url","image_url":{{"url":"data:"}}}}],"role":"user"}},{{"role":"assistant","content":null,
            "tool_calls":[{{"id":"1","function":{{"name":"f","arguments":{c}}}}}]}},{{"role":"tool","content":{d}}}],
            "tools":[{{"type":"function","function":{{"name":"f","description":{e}}}}}]}}"#
        ),
        Endpoint::Responses => format!(
            r#"{{"instructions":{a},"input":[{{"role":"user","content":[{{"type":"input_text","text":{b}}}]}},
            {{"type":"function_call","name":"f","arguments":{c}}},{{"type":"function_call_output","output":{d}}}],
            "tools":[{{"type":"function","name":"f","description":{e}}}],"model":"m"}}"#
        ),
        Endpoint::Messages => format!(
            r#"{{"system":[{{"type":"text","text":{a}}}],"messages":[{{"role":"user","content":[
            {{"type":"document","source":{{"type":"text","data":{b}}}}},{{"type":"text","text":{c}}},
            {{"type":"tool_result","content":{d}}}]}}],"tools":[{{"name":"f","description":{e}}}],"model":"m"}}"#
        ),
        Endpoint::Completions | Endpoint::Embeddings => {
            format!(r#"{{"prompt":[{a},{b},[1,2],{c},{d}],"suffix":{e},"model":"m"}}"#)
        }
    }
}

/// A text as JSON, with an escape for each character whose bit is set.
fn quoted(text: &str, escaped: u64) -> String {
    let mut out = String::from("\"");
    for (at, character) in text.chars().enumerate() {
        let must = character < ' ' || matches!(character, '"' | '\\');
        if must || (escaped >> (at % 64)) & 1 == 1 {
            character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
        } else {
            out.push(character);
        }
    }
    out + "\""
}

/// The places of all texts of a body, in the order of the bytes.
fn places(facts: &Facts) -> Vec<Span> {
    let texts = facts.prompts.texts.iter().map(|text| text.span);
    let calls = facts.prompts.calls.iter().filter_map(|call| call.arguments);
    let descriptions = facts.tools.list.iter().filter_map(|tool| tool.description);
    let mut places: Vec<Span> = texts.chain(calls).chain(descriptions).collect();
    places.sort_by_key(|span| span.start);
    places
}

/// A part of a text by two numbers, between characters.
fn part(text: &str, (from, to): (usize, usize)) -> std::ops::Range<usize> {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let (from, to) = (from % ends.len(), to % ends.len());
    ends[from.min(to)]..ends[from.max(to)]
}

fn texts() -> impl Strategy<Value = [(String, u64, (usize, usize)); TEXTS]> {
    let text = prop_oneof![".{0,40}", "[ -~\\n\"\\\\]{0,40}", "[\u{4e00}-\u{4fff}\u{1f600}-\u{1f64f}]{0,20}"];
    proptest::array::uniform5((text, any::<u64>(), any::<(usize, usize)>()))
}

proptest! {
    #[test]
    fn each_text_is_its_bytes_and_an_edit_in_place_leaves_the_rest(texts in texts(), marker in ".{0,12}") {
        for endpoint in ENDPOINTS {
            let strings = texts.each_ref().map(|(text, escaped, _)| quoted(text, *escaped));
            let body = self::body(endpoint, strings.each_ref().map(|text| &**text));
            let facts = read(endpoint, body.as_bytes(), Wanted { prompts: true }).expect("valid");
            let places = places(&facts);
            prop_assert_eq!(places.len(), TEXTS, "{}", body);
            let (mut splice, mut edited) = (Splice::default(), Vec::new());
            // Edits may come in any order.
            for ((text, _, range), span) in texts.iter().zip(&places).rev() {
                let raw = span.of(body.as_bytes());
                let value: String = serde_json::from_slice(raw).expect("a string");
                prop_assert_eq!(&value, text);
                let (mut decoded, part) = (Decoded::default(), part(text, *range));
                decoded.decode(&raw[1..raw.len() - 1], raw.len()).expect("a string");
                prop_assert_eq!(decoded.text(), text);
                splice.redact(*span, &decoded, part.clone(), &marker);
                edited.insert(0, quoted(&format!("{}{marker}{}", &text[..part.start], &text[part.end..]), 0));
            }
            let redacted: Value = serde_json::from_slice(&splice.apply(body.as_bytes())).expect("still JSON");
            let wanted: Value = serde_json::from_str(&self::body(endpoint, std::array::from_fn(|at| &*edited[at]))).expect("JSON");
            prop_assert_eq!(redacted, wanted);
        }
    }
}

#[test]
fn texts_know_their_authors() {
    let strings = ["\"a\"", "\"b\"", "\"c\"", "\"d\"", "\"e\""];
    let roles = |endpoint| {
        let body = body(endpoint, strings);
        let facts = read(endpoint, body.as_bytes(), Wanted { prompts: true }).expect("valid");
        let texts = facts.prompts.texts.iter().map(|text| text.role);
        (texts.collect::<Vec<_>>(), facts.prompts.calls.iter().map(|call| call.role).collect::<Vec<_>>())
    };
    let called = (vec![Role::System, Role::User, Role::Tool], vec![Role::Assistant]);
    assert_eq!((roles(Endpoint::Chat), roles(Endpoint::Responses)), (called.clone(), called));
    assert_eq!(roles(Endpoint::Messages), (vec![Role::System, Role::User, Role::User, Role::Tool], Vec::new()));
    assert_eq!(roles(Endpoint::Completions), (vec![Role::User; TEXTS], Vec::new()));
}

#[test]
fn two_parts_of_a_text_are_redacted_within_their_escapes() {
    let body = r#"{"messages":[{"role":"user","content":"to a\u0040b.example or c@d.\u0065xample\n"}]}"#;
    let facts = read(Endpoint::Chat, body.as_bytes(), Wanted { prompts: true }).expect("valid");
    let span = facts.prompts.texts[0].span;
    let (raw, mut decoded) = (span.of(body.as_bytes()), Decoded::default());
    decoded.decode(&raw[1..raw.len() - 1], raw.len()).expect("a string");
    let mut splice = Splice::default();
    for address in ["c@d.example", "a@b.example"] {
        let at = decoded.text().find(address).expect("there");
        splice.redact(span, &decoded, at..at + address.len(), "[REDACTED_EMAIL]");
    }
    let wanted = r#"{"messages":[{"role":"user","content":"to [REDACTED_EMAIL] or [REDACTED_EMAIL]\n"}]}"#;
    assert_eq!(String::from_utf8(splice.apply(body.as_bytes())).expect("UTF-8"), wanted);
}
