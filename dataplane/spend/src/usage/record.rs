//! The record of a request, and its line.

use std::time::Duration;

use weir_base::time::rfc3339_millis;

use crate::{
    amount::{Amount, Tokens},
    budget::Day,
};

/// Bytes of a line. Twelve texts of [`TEXT_BYTES_MAX`], each byte escaped, and all numbers fit.
pub const LINE_BYTES_MAX: usize = 4_096;

/// Bytes of one text; the rest is cut off. Default 128, which the longest name of a key has.
pub const TEXT_BYTES_MAX: usize = 128;

/// The trust that a record deserves, and events of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Tokens were counted or estimated here: the provider reported none.
    pub estimated: bool,
    /// The client left: the delivered part is counted.
    pub partial: bool,
    /// The response came from the cache of the gateway and cost nothing.
    pub cached: bool,
    /// More than one attempt.
    pub retried: bool,
    /// The process died before the end: the reservation is charged in full.
    pub crash: bool,
    /// The price table has no row for the model.
    pub unpriced: bool,
    /// The provider reported impossible numbers, which were cut.
    pub implausible: bool,
}

impl Flags {
    fn names(self) -> impl Iterator<Item = &'static str> {
        let rows = [
            (self.estimated, "estimated"),
            (self.partial, "partial"),
            (self.cached, "cached"),
            (self.retried, "retried"),
            (self.crash, "crash"),
            (self.unpriced, "unpriced"),
            (self.implausible, "implausible"),
        ];
        rows.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name)
    }
}

/// One request. Prompts, responses and secrets have no field here.
#[derive(Clone, Debug, Default)]
pub struct UsageRecord<'a> {
    /// Unix time of the end; of the beginning if the process died before.
    pub time: Duration,
    /// Identity of the request. The gateway makes it, so that no two requests have the same one.
    pub request: &'a str,
    /// The day whose budgets are charged.
    pub day: Day,
    /// Name of the key.
    pub key: Option<&'a str>,
    /// Its team.
    pub team: Option<&'a str>,
    /// The model that the client named.
    pub model: &'a str,
    /// The model that responded.
    pub model_served: Option<&'a str>,
    /// Name of the upstream that responded.
    pub provider: Option<&'a str>,
    /// The server whose tool was called.
    pub server: Option<&'a str>,
    /// The tool.
    pub tool: Option<&'a str>,
    /// Tokens by class.
    pub tokens: Tokens,
    /// The charge to the budgets.
    pub charged: Amount,
    /// Tokens that a provider would have billed without the cache. In the line of a record with [`Flags::cached`] alone.
    pub saved_tokens: u64,
    /// Version of the price table.
    pub price_version: u32,
    /// Status of the response; 0 if there was none.
    pub status: u16,
    /// Attempts at providers.
    pub tries: u32,
    /// Waited for admission.
    pub queue: Duration,
    /// Until the first token, or the head of a buffered response.
    pub first_token: Option<Duration>,
    /// From the head of the request to the end of the response.
    pub total: Duration,
    /// How far it can be trusted.
    pub flags: Flags,
    /// The end user, as the client attributes the request.
    pub user: Option<&'a str>,
    /// The agent.
    pub agent: Option<&'a str>,
    /// The conversation.
    pub conversation: Option<&'a str>,
    /// Further words.
    pub tags: Option<&'a str>,
}

impl UsageRecord<'_> {
    /// Appends the line, with its end.
    pub fn write(&self, into: &mut Vec<u8>) {
        let begin = into.len();
        // Each request writes a line. In a row each name is a constant, which a loop over a table would copy by its length.
        into.extend_from_slice(br#"{"time":""#);
        into.extend_from_slice(&rfc3339_millis(self.time));
        into.push(b'"');
        text(into, br#","request":"#, Some(self.request));
        text(into, br#","key":"#, self.key);
        text(into, br#","team":"#, self.team);
        text(into, br#","model":"#, Some(self.model));
        text(into, br#","model_served":"#, self.model_served);
        text(into, br#","provider":"#, self.provider);
        text(into, br#","server":"#, self.server);
        text(into, br#","tool":"#, self.tool);
        text(into, br#","user":"#, self.user);
        text(into, br#","agent":"#, self.agent);
        text(into, br#","conversation":"#, self.conversation);
        text(into, br#","tags":"#, self.tags);
        self.write_numbers(into);
        into.extend_from_slice(br#","flags":["#);
        for (index, name) in self.flags.names().enumerate() {
            into.extend_from_slice(if index > 0 { b",\"" } else { b"\"" });
            into.extend_from_slice(name.as_bytes());
            into.push(b'"');
        }
        into.extend_from_slice(b"]}\n");
        debug_assert!(into.len() - begin <= LINE_BYTES_MAX);
    }

    fn write_numbers(&self, into: &mut Vec<u8>) {
        let tokens = &self.tokens;
        number(into, br#","day":"#, u64::from(self.day.number()));
        number(into, br#","input_tokens":"#, tokens.input);
        number(into, br#","cached_input_tokens":"#, tokens.cached_input);
        number(into, br#","cache_write_tokens":"#, tokens.cache_write);
        number(into, br#","audio_input_tokens":"#, tokens.audio_input);
        number(into, br#","output_tokens":"#, tokens.output);
        number(into, br#","reasoning_tokens":"#, tokens.reasoning);
        number(into, br#","audio_output_tokens":"#, tokens.audio_output);
        number(into, br#","charged_tokens":"#, self.charged.tokens);
        number(into, br#","cost_micro":"#, self.charged.money);
        number(into, br#","price_version":"#, u64::from(self.price_version));
        number(into, br#","status":"#, u64::from(self.status));
        number(into, br#","tries":"#, u64::from(self.tries));
        number(into, br#","queue_us":"#, micros(self.queue));
        number(into, br#","total_us":"#, micros(self.total));
        if self.flags.cached {
            number(into, br#","saved_tokens":"#, self.saved_tokens);
        }
        if let Some(span) = self.first_token {
            number(into, br#","first_token_us":"#, micros(span));
        }
    }
}

#[inline]
fn text(into: &mut Vec<u8>, name: &[u8], text: Option<&str>) {
    if let Some(text) = text {
        into.extend_from_slice(name);
        string(text, into);
    }
}

#[inline]
fn number(into: &mut Vec<u8>, name: &[u8], number: u64) {
    into.extend_from_slice(name);
    match u8::try_from(number) {
        // Most are zero.
        Ok(digit @ 0..10) => into.push(b'0' + digit),
        _ => into.extend_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// A string of JSON. Clients name models and users: control characters become `?`, so that no text begins a line or moves a
/// cursor, and what is too long is cut between characters.
fn string(text: &str, into: &mut Vec<u8>) {
    into.push(b'"');
    let end = text.floor_char_boundary(TEXT_BYTES_MAX);
    let text = &text[..end];
    // Without a branch, so that the compiler makes vectors of it.
    let is_special = |byte: u8| !(b' '..=b'~').contains(&byte) | (byte == b'"') | (byte == b'\\');
    if !text.bytes().fold(false, |found, byte| found | is_special(byte)) {
        into.extend_from_slice(text.as_bytes());
        into.push(b'"');
        return;
    }
    for letter in text.chars() {
        match letter {
            '"' | '\\' => into.extend_from_slice(&[b'\\', letter as u8]),
            letter if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') => into.push(b'?'),
            letter => into.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    into.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn line(record: &UsageRecord<'_>) -> String {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_line_has_every_field_of_the_record() {
        let record = UsageRecord {
            time: Duration::from_millis(1_700_000_000_123),
            request: "req_1",
            day: Day::new(19_675),
            key: Some("ci"),
            team: Some("search"),
            model: "fast",
            model_served: Some("gpt-4o-mini"),
            provider: Some("openai"),
            tokens: Tokens { input: 100, cached_input: 40, output: 20, reasoning: 5, ..Tokens::default() },
            charged: Amount { tokens: 120, money: 77 },
            price_version: 3,
            status: 200,
            tries: 2,
            queue: Duration::from_micros(5),
            first_token: Some(Duration::from_millis(300)),
            total: Duration::from_secs(2),
            flags: Flags { partial: true, retried: true, ..Flags::default() },
            user: Some("u"),
            ..UsageRecord::default()
        };
        let line = line(&record);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["time"], "2023-11-14T22:13:20.123Z");
        assert_eq!(
            (&value["key"], &value["model"], &value["model_served"]),
            (&"ci".into(), &"fast".into(), &"gpt-4o-mini".into())
        );
        assert_eq!((&value["cached_input_tokens"], &value["charged_tokens"]), (&40.into(), &120.into()));
        assert_eq!((&value["cost_micro"], &value["price_version"]), (&77.into(), &3.into()));
        assert_eq!((&value["first_token_us"], &value["total_us"]), (&300_000.into(), &2_000_000.into()));
        assert_eq!(value["flags"], serde_json::json!(["partial", "retried"]));
        assert!(value.get("agent").is_none());
    }

    #[test]
    fn a_response_from_the_cache_shows_the_tokens_that_it_saved() {
        let cached = Flags { cached: true, ..Flags::default() };
        let record =
            UsageRecord { request: "r", model: "m", saved_tokens: 14, flags: cached, ..UsageRecord::default() };
        let value: Value = serde_json::from_str(&line(&record)).unwrap();
        assert_eq!((&value["saved_tokens"], &value["charged_tokens"]), (&14.into(), &0.into()));
        assert_eq!(value["flags"], serde_json::json!(["cached"]));
        let other: Value =
            serde_json::from_str(&line(&UsageRecord { saved_tokens: 1, ..UsageRecord::default() })).unwrap();
        assert!(other.get("saved_tokens").is_none());
    }

    #[test]
    fn the_longest_line_fits() {
        let text = "\"".repeat(500);
        let (some, most) = (Some(text.as_str()), u64::MAX);
        let tokens = Tokens {
            input: most,
            cached_input: most,
            cache_write: most,
            audio_input: most,
            output: most,
            reasoning: most,
            audio_output: most,
        };
        let all = Flags {
            estimated: true,
            partial: true,
            cached: true,
            retried: true,
            crash: true,
            unpriced: true,
            implausible: true,
        };
        let record = UsageRecord {
            time: Duration::from_secs(253_402_300_799),
            request: &text,
            day: Day::new(u32::MAX),
            key: some,
            team: some,
            model: &text,
            model_served: some,
            provider: some,
            server: some,
            tool: some,
            tokens,
            charged: Amount { tokens: most, money: most },
            saved_tokens: most,
            price_version: u32::MAX,
            status: u16::MAX,
            tries: u32::MAX,
            queue: Duration::MAX,
            first_token: Some(Duration::MAX),
            total: Duration::MAX,
            flags: all,
            user: some,
            agent: some,
            conversation: some,
            tags: some,
        };
        let length = line(&record).len();
        assert!((LINE_BYTES_MAX / 2..=LINE_BYTES_MAX).contains(&length), "{length}");
    }

    proptest! {
        #[test]
        fn no_text_of_a_client_breaks_out_of_its_line(text in "\\PC{0,300}|[\\x00-\\x7f]{0,300}", other in any::<String>()) {
            let (model, user) = (text.as_str(), Some(other.as_str()));
            let all = UsageRecord { request: "r", model, user, agent: user, tags: user, team: user, ..UsageRecord::default() };
            let line = line(&all);
            prop_assert!(line.len() <= LINE_BYTES_MAX);
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert!(!line.trim_end().chars().any(char::is_control));
            let value: Value = serde_json::from_str(&line).unwrap();
            let shown = value["model"].as_str().unwrap();
            prop_assert!(shown.len() <= TEXT_BYTES_MAX);
            prop_assert_eq!(shown.chars().count() > 0, !text.is_empty());
        }
    }
}
