//! Events as they arrive: how many of them say something to a user.

/// The position behind the last whole event of a body, and the events with text between `from` and there. A line without an end
/// is no event yet.
pub(in crate::protocols) fn scan(body: &[u8], from: usize) -> (usize, usize) {
    let (mut at, mut count) = (from, 0);
    while let Some(end) = event_end(&body[at..]) {
        count += usize::from(says_something(&body[at..at + end]));
        at += end;
    }
    (at, count)
}

/// Bytes of the event at the front, with its blank line.
fn event_end(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let line = at + rest.get(at..)?.iter().position(|byte| *byte == b'\n')?;
        at = line + 1;
        match rest.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

/// It has content, or a piece of the arguments of a call.
fn says_something(event: &[u8]) -> bool {
    [&b"\"content\":"[..], b"\"arguments\":"].iter().any(|name| {
        let value = find(event, name).map(|at| event[at + name.len()..].trim_ascii_start());
        matches!(value, Some([b'"', next, ..]) if *next != b'"')
    })
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_with_text_are_counted_once_they_are_whole() {
        let body = b"data: {\"delta\":{\"role\":\"a\",\"content\":\"\"}}\n\ndata: {\"delta\":{\"content\":\"x\"}}\n\n\
            : note\n\ndata: {\"delta\": {\"content\": \"y\"}}\r\n\r\ndata: {\"content\":null}\n\ndata: [DONE]\n\n";
        let whole = scan(body, 0);
        assert_eq!(whole, (body.len(), 2));
        for cut in 0..body.len() {
            let (at, first) = scan(&body[..cut], 0);
            let (end, rest) = scan(body, at);
            assert_eq!((end, first + rest), whole, "cut at {cut}");
        }
        let call = b"data: {\"tool_calls\":[{\"function\":{\"arguments\":\"{\"}}]}\n\n";
        assert_eq!(scan(call, 0), (call.len(), 1));
    }
}
