//! Lists of tools within a stream.

use weir_mcp_session::{ToolEvents, ToolEventsError};
use weir_sse_codec::Limits;

const LIST: &str = r#"{"result":{"tools":[{"name":"ok"},{"name":"no"}]},"id":1}"#;
const LEFT: &str = r#"{"result":{"tools":[{"name":"ok"}]},"id":1}"#;

fn may_use(name: &str) -> bool {
    name == "ok"
}

/// The bytes that pass of a stream in pieces of this size, and its error.
fn passed(stream: &[u8], piece: usize, limits: Limits) -> (Vec<u8>, Option<ToolEventsError>) {
    let (mut events, mut out) = (ToolEvents::new(limits), Vec::new());
    for piece in stream.chunks(piece) {
        if let Err(error) = events.push(piece, &may_use, &mut out) {
            return (out, Some(error));
        }
        assert!(events.held_bytes() <= limits.event_bytes + 8);
    }
    (out, None)
}

/// The same wherever it is cut.
fn filtered(stream: &str) -> String {
    let whole = passed(stream.as_bytes(), stream.len().max(1), Limits::default());
    for piece in 1..=stream.len() {
        let cut = passed(stream.as_bytes(), piece, Limits::default());
        assert_eq!(String::from_utf8_lossy(&cut.0), String::from_utf8_lossy(&whole.0), "pieces of {piece}");
        assert_eq!(cut.1, whole.1, "pieces of {piece}");
    }
    String::from_utf8(whole.0).expect("UTF-8")
}

#[test]
fn a_list_loses_tools_and_all_other_bytes_stay() {
    for frame in [
        "data: LIST\n\n",
        "data:LIST\r\n\r\n",
        "data: LIST\r\r",
        "\u{feff}data: LIST\n\n",
        ": comment\n\nid: 1\ndata:\n\nevent: message\nid: 2\ndata: LIST\nretry: 5\n\ndata: {\"method\":\"x\"}\n\n",
        "id: 1\r\n: within\r\ndata: LIST\r\nx\r\n\r\n",
        "data: {\"method\":\"x\"}\n\ndata: LIST\n\ndata: LIST\n\n",
    ] {
        assert_eq!(filtered(&frame.replace("LIST", LIST)), frame.replace("LIST", LEFT), "{frame}");
    }
}

#[test]
fn data_in_several_lines_stays_in_lines() {
    let (front, back) = (r#"{"result":"#, r#"{"tools":[{"name":"no"},{"name":"ok"}]}}"#);
    let stream = format!("id: 1\ndata: {front}\n: c\ndata: {back}\n\n");
    let wanted = "id: 1\ndata: {\"result\":\ndata: {\"tools\":[{\"name\":\"ok\"}]}}\n: c\n\n";
    assert_eq!(filtered(&stream), wanted);
}

#[test]
fn events_that_readers_skip_pass_and_an_unfinished_one_does_not() {
    let skipped = "event: ping\ndata: no JSON\n\ndata\n\n\n: x\n";
    assert_eq!(filtered(skipped), skipped);
    assert_eq!(filtered(&format!("data: {{}}\n\ndata: {LIST}\n")), "data: {}\n\n");
}

#[test]
fn an_event_that_cannot_be_judged_ends_the_stream_in_front_of_it() {
    for bad in ["no JSON", r#"{"result":{"tools":[{"name":"ok","name":"no"}]}}"#] {
        let stream = format!("data: {{}}\n\ndata: {bad}\n\ndata: {{}}\n\n");
        let (out, error) = passed(stream.as_bytes(), 7, Limits::default());
        assert_eq!(String::from_utf8_lossy(&out), "data: {}\n\n", "{bad}");
        assert!(matches!(error, Some(ToolEventsError::Message(_))), "{bad}: {error:?}");
    }
    let limits = Limits { line_bytes: 64, event_bytes: 64 };
    let endless = format!("data: {{}}\n\ndata: {}", "x".repeat(1_000));
    let (out, error) = passed(endless.as_bytes(), 10, limits);
    assert_eq!(String::from_utf8_lossy(&out), "data: {}\n\n");
    assert!(matches!(error, Some(ToolEventsError::Limit(_))), "{error:?}");
}
