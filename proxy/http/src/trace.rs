//! Ids of a request: X-Request-Id and the trace context of W3C.

use weir_http_codec::{Fields, Known};

use crate::options::{ForwardedFields, TraceContext};

/// Bytes of an accepted request id. Default 128, as long as Heroku and Rails let one be.
const REQUEST_ID_BYTES_MAX: usize = 128;

/// Bytes of `traceparent` in version 00: `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const TRACEPARENT_BYTES: usize = 55;

/// Gives a request an id, unless a trusted proxy has.
pub(crate) fn request_id(fields: &mut Fields, forwarded: ForwardedFields, mut chance: impl FnMut() -> u64) {
    if forwarded == ForwardedFields::Append && is_one_id(fields) {
        return;
    }
    // A UUID of version 4 (RFC 9562 section 5.4): four digits of it are not by chance.
    let [high, low] = [(chance() & !0xf000) | 0x4000, (chance() & !(0b11 << 62)) | (0b10 << 62)].map(digits);
    let mut id = [b'-'; 36];
    let parts = [(0, &high[..8]), (9, &high[8..12]), (14, &high[12..]), (19, &low[..4]), (24, &low[4..])];
    parts.into_iter().for_each(|(at, part)| id[at..at + part.len()].copy_from_slice(part));
    fields.set(Known::XRequestId, &id);
}

fn is_one_id(fields: &Fields) -> bool {
    let mut lines = fields.all(Known::XRequestId);
    let is_id = |id: &[u8]| (1..=REQUEST_ID_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
    lines.next().is_some_and(is_id) && lines.next().is_none()
}

/// Makes the trace context of a request that of its child, as the settings say.
pub(crate) fn trace(fields: &mut Fields, context: TraceContext, mut chance: impl FnMut() -> u64) {
    if context == TraceContext::Pass {
        return;
    }
    let parent = one(fields).and_then(Parent::of);
    if parent.is_none() {
        // Without a readable parent the state is invalid (W3C Trace Context section 4.3).
        fields.remove(Known::Traceparent);
        fields.remove(Known::Tracestate);
        if context == TraceContext::Child {
            return;
        }
    }
    let mut line = *b"00-00000000000000000000000000000000-0000000000000000-00";
    match parent {
        Some(Parent { trace, is_sampled }) => {
            line[3..35].copy_from_slice(&trace);
            line[54] += u8::from(is_sampled);
        }
        None => {
            line[3..19].copy_from_slice(&digits(chance() | 1));
            line[19..35].copy_from_slice(&digits(chance()));
            line[54] = b'1';
        }
    }
    // Never all zeros, which would be no span.
    line[36..52].copy_from_slice(&digits(chance() | 1));
    fields.set(Known::Traceparent, &line);
}

/// The trace of a `traceparent`, if it is one.
pub(crate) fn trace_id(line: &[u8]) -> Option<&str> {
    Parent::of(line)?;
    std::str::from_utf8(&line[3..35]).ok()
}

fn one(fields: &Fields) -> Option<&[u8]> {
    let mut lines = fields.all(Known::Traceparent);
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

struct Parent {
    trace: [u8; 32],
    is_sampled: bool,
}

impl Parent {
    /// Accepts any version but ff; the fields of later versions behind these are not known here.
    fn of(line: &[u8]) -> Option<Self> {
        let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let (known, rest) = line.split_at_checked(TRACEPARENT_BYTES)?;
        let (version, trace, span, flags) = (&known[..2], &known[3..35], &known[36..52], &known[53..]);
        let has_dashes = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        let is_whole = rest.is_empty() || (version != b"00" && rest[0] == b'-');
        let has_digits = [version, trace, span, flags].into_iter().all(is_hex);
        let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == b'0');
        if !has_dashes || !is_whole || !has_digits || version == b"ff" || is_zero(trace) || is_zero(span) {
            return None;
        }
        let low = char::from(flags[1]).to_digit(16)?;
        Some(Self { trace: trace.try_into().ok()?, is_sampled: low & 1 == 1 })
    }
}

/// In hexadecimal, the upper digits first.
fn digits(number: u64) -> [u8; 16] {
    std::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at)) as usize & 0xf])
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn fields(lines: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        fields
    }

    fn written(fields: &Fields) -> String {
        let mut bytes = Vec::new();
        fields.write(&mut bytes);
        String::from_utf8(bytes).expect("ASCII")
    }

    fn traced(context: TraceContext, lines: &[(&str, &str)]) -> String {
        let mut fields = fields(lines);
        trace(&mut fields, context, || 0xabcd_ef01_2345_6788);
        written(&fields)
    }

    #[test]
    fn an_id_is_made_unless_a_trusted_proxy_made_one() {
        use ForwardedFields::*;
        let id = |forwarded, lines: &[(&str, &str)]| {
            let mut fields = fields(lines);
            let mut chance = [u64::MAX, 0].into_iter();
            request_id(&mut fields, forwarded, || chance.next().expect("two"));
            written(&fields)
        };
        let made = "x-request-id: ffffffff-ffff-4fff-8000-000000000000\r\n";
        assert_eq!(id(Replace, &[("X-Request-Id", "theirs")]), made);
        assert_eq!(id(Append, &[]), made);
        assert_eq!(id(Append, &[("X-Request-Id", "theirs")]), "X-Request-Id: theirs\r\n");
        assert_eq!(id(Append, &[("X-Request-Id", "a"), ("X-Request-Id", "b")]), made);
        for bad in ["", "a b", &"x".repeat(129)] {
            assert_eq!(id(Append, &[("X-Request-Id", bad)]), made, "{bad}");
        }
    }

    #[test]
    fn a_child_keeps_the_trace_and_has_a_span_of_its_own() {
        let child = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-abcdef0123456789-01\r\n";
        for context in [TraceContext::Child, TraceContext::Start] {
            assert_eq!(
                traced(context, &[("traceparent", PARENT), ("tracestate", "a=b")]),
                format!("tracestate: a=b\r\n{child}")
            );
        }
        let later = format!("cc-{}-what-comes-later", &PARENT[3..]);
        assert_eq!(traced(TraceContext::Child, &[("traceparent", &later)]), child);
        assert_eq!(traced(TraceContext::Pass, &[("traceparent", "x")]), "traceparent: x\r\n");
        assert_eq!(trace_id(PARENT.as_bytes()), Some("0af7651916cd43dd8448eb211c80319c"));
    }

    #[test]
    fn a_malformed_trace_context_is_not_forwarded() {
        let zero_trace = PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32));
        let zero_span = PARENT.replace("b7ad6b7169203331", &"0".repeat(16));
        let (upper, long) = (PARENT.to_uppercase(), format!("{PARENT}-x"));
        let version = PARENT.replacen("00", "ff", 1);
        for bad in ["", "x", &PARENT[..54], &zero_trace, &zero_span, &upper, &long, &version] {
            let lines = [("traceparent", bad), ("tracestate", "a=b")];
            assert_eq!(traced(TraceContext::Child, &lines), "", "{bad}");
            let begun = "traceparent: 00-abcdef0123456789abcdef0123456788-abcdef0123456789-01\r\n";
            assert_eq!(traced(TraceContext::Start, &lines), begun, "{bad}");
        }
        assert_eq!(traced(TraceContext::Child, &[("traceparent", PARENT), ("traceparent", PARENT)]), "");
    }
}
