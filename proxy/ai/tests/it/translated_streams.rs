//! Streams that are translated: whole, cut everywhere, broken off everywhere.

use serde_json::Value;
use weir_ai::settings::ProviderDialect;

use crate::{
    gateway::{EVENTS, chunk, post, respond},
    support::{Client, Gateway},
    translation::{CHAT, CHATS, MESSAGE, MESSAGES, flagged, gateway, parts, tokens},
};

/// A stream of a provider with the same tokens in each dialect, and a text and a call.
const CHUNKS: &str = concat!(
    ": wait\n\n",
    "data: {\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"s\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    "data: {\"id\":\"c1\",\"model\":\"s\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ab\u{e4}d\"}}]}\n\n",
    "data: {\"id\":\"c1\",\"model\":\"s\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"t\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]}}]}\r\n\r\n",
    "data: {\"id\":\"c1\",\"model\":\"s\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]}}]}\n\n",
    "data: {\"id\":\"c1\",\"model\":\"s\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
    "data: {\"id\":\"c1\",\"model\":\"s\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"total_tokens\":13}}\n\n",
    "data: [DONE]\n\n",
);
const SAID: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"s\",\"content\":[],\"usage\":{\"input_tokens\":9,\"output_tokens\":1}}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"ab\u{e4}d\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":1}\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":4}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

/// A dialect of a provider, its stream, and the path and the body of a client of the other dialect, with its last event.
struct Side {
    dialect: ProviderDialect,
    stream: &'static str,
    path: &'static str,
    request: String,
    last: &'static str,
}

fn sides() -> [Side; 2] {
    let streamed = |body: &str| body.replace("\"model\"", "\"stream\":true,\"model\"");
    [
        Side {
            dialect: ProviderDialect::Anthropic,
            stream: SAID,
            path: CHATS,
            request: streamed(CHAT),
            last: "data: [DONE]\n\n",
        },
        Side {
            dialect: ProviderDialect::OpenAi,
            stream: CHUNKS,
            path: MESSAGES,
            request: streamed(MESSAGE),
            last: "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        },
    ]
}

impl Side {
    fn gateway(&self) -> Gateway {
        gateway(self.dialect)
    }

    /// The body for a client of the next request, for which the provider sends this behind its request.
    fn body(&self, gateway: &Gateway, client: &mut Client, response: &str) -> String {
        client.send(&post(self.path, &self.request));
        let mut end = gateway.origin.accept();
        respond(&mut end, response);
        drop(end);
        let head = client.head().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 ") && head.contains("text/event-stream"), "{head}");
        let mut all = Vec::new();
        while let Some(chunk) = client.0.chunk() {
            all.extend_from_slice(&chunk);
        }
        without_time(&String::from_utf8(all).expect("UTF-8"))
    }
}

/// The body with the time at which a chat was created in the form of zero.
fn without_time(body: &str) -> String {
    let mut parts = body.split("\"created\":");
    let front = parts.next().unwrap_or_default().to_owned();
    parts.fold(front, |all, part| all + "\"created\":0" + part.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}

/// A provider that closes behind this.
fn closing(stream: &str) -> String {
    format!("{}{stream}", EVENTS.replacen("Transfer-Encoding", "Connection: close\r\nTransfer-Encoding", 1))
}

/// The data of the events, where it is JSON.
fn events(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

#[test]
fn a_stream_is_translated_and_its_accounts_are_the_provider_s() {
    for side in sides() {
        let gateway = side.gateway();
        let mut client = gateway.client();
        let body = side.body(&gateway, &mut client, &closing(&format!("{}0\r\n\r\n", chunk(side.stream))));
        assert!(body.ends_with(side.last), "{body}");
        let events = events(&body);
        match side.dialect {
            ProviderDialect::Anthropic => {
                let said: String =
                    events.iter().filter_map(|it| it["choices"][0]["delta"]["content"].as_str()).collect();
                let call = |it: &Value| it["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].clone();
                let arguments: String = events.iter().filter_map(|it| call(it).as_str().map(str::to_owned)).collect();
                assert_eq!((&*said, &*arguments), ("ab\u{e4}d", "{\"a\":1}"), "{body}");
                assert!(events.iter().all(|event| event["usage"].is_null()), "the client does not want usage: {body}");
            }
            _ => {
                let delta = |name: &str| -> String {
                    events.iter().filter_map(|event| event["delta"][name].as_str()).collect()
                };
                assert_eq!((&*delta("text"), &*delta("partial_json")), ("ab\u{e4}d", "{\"a\":1}"), "{body}");
                let end = events.iter().find(|event| event["type"] == "message_delta").expect("an end");
                assert_eq!(
                    (&end["usage"]["input_tokens"], &end["delta"]["stop_reason"]),
                    (&9.into(), &"tool_use".into())
                );
            }
        }
        drop(client);
        gateway.rests();
        assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "output")), (9, 4));
        assert_eq!((flagged(&gateway, "partial"), flagged(&gateway, "estimated")), (0, 0));
    }
}

#[test]
fn usage_is_requested_from_a_provider_of_chats_and_given_to_a_chat_that_wants_it() {
    let [to_messages, to_chat] = sides();
    let gateway = to_chat.gateway();
    let mut client = gateway.client();
    client.send(&post(to_chat.path, &to_chat.request));
    let sent = parts(&gateway.origin.accept().request()).1;
    assert_eq!(sent["stream_options"]["include_usage"], true, "{sent}");
    drop(client);
    let request = to_messages.request.replace("\"stream\"", "\"stream_options\":{\"include_usage\":true},\"stream\"");
    let side = Side { request, ..to_messages };
    let gateway = side.gateway();
    let body = side.body(&gateway, &mut gateway.client(), &closing(&format!("{}0\r\n\r\n", chunk(SAID))));
    let usage: Vec<_> = events(&body).into_iter().filter(|event| !event["usage"].is_null()).collect();
    assert!(matches!(&usage[..], [one] if one["usage"]["total_tokens"] == 13), "{usage:?}");
}

#[test]
fn a_stream_that_is_cut_at_any_byte_is_the_same() {
    for side in sides() {
        let gateway = side.gateway();
        let mut client = gateway.client();
        let bytes = side.stream.as_bytes();
        let wanted = side.body(&gateway, &mut client, &closing(&format!("{}0\r\n\r\n", chunk(side.stream))));
        for cut in 1..bytes.len() {
            client.send(&post(side.path, &side.request));
            let mut end = gateway.origin.accept();
            end.request();
            end.send(&closing(""));
            for piece in [&bytes[..cut], &bytes[cut..]] {
                end.send(&format!("{:x}\r\n", piece.len()));
                end.0.send_bytes(piece);
                end.send("\r\n");
            }
            end.send("0\r\n\r\n");
            client.head();
            let mut all = Vec::new();
            while let Some(chunk) = client.0.chunk() {
                all.extend_from_slice(&chunk);
            }
            assert_eq!(without_time(&String::from_utf8_lossy(&all)), wanted, "cut at {cut}");
        }
        drop(client);
        gateway.rests();
        let exchanges = bytes.len() as u64;
        assert_eq!((tokens(&gateway, "input"), tokens(&gateway, "output")), (9 * exchanges, 4 * exchanges));
    }
}

#[test]
fn a_stream_that_breaks_off_at_any_byte_ends_with_an_error_in_the_form_of_the_client() {
    for side in sides() {
        let gateway = side.gateway();
        let mut client = gateway.client();
        let bytes = side.stream.as_bytes();
        let mut wholes = 0;
        for cut in 1..=bytes.len() {
            client.send(&post(side.path, &side.request));
            let mut end = gateway.origin.accept();
            end.request();
            end.send(&closing(""));
            end.send(&format!("{cut:x}\r\n"));
            end.0.send_bytes(&bytes[..cut]);
            end.send("\r\n");
            drop(end);
            client.head();
            let mut all = Vec::new();
            while let Some(chunk) = client.0.chunk() {
                all.extend_from_slice(&chunk);
            }
            let body = String::from_utf8(all).expect("UTF-8");
            if body.ends_with(side.last) {
                wholes += 1;
                continue;
            }
            let last = events(&body).pop().expect("an event");
            let kind = if side.path == CHATS { "server_error" } else { "api_error" };
            assert!(last["error"]["type"] == kind && body.ends_with("\n\n"), "{cut}: {body}");
            assert!(!body.contains("[DONE]") && !body.contains("message_stop"), "{cut}: {body}");
        }
        assert!((1..=2).contains(&wholes), "only behind the last event: {wholes}");
        drop(client);
        gateway.rests();
        assert_eq!(flagged(&gateway, "partial"), (bytes.len() - wholes) as u64);
    }
}

#[test]
fn a_stream_without_its_last_event_is_broken_off_even_if_its_body_is_whole() {
    for side in sides() {
        let gateway = side.gateway();
        let mut client = gateway.client();
        let half = &side.stream[..side.stream.find("\u{e4}").expect("a text")];
        let half = &half[..half.rfind("\n\n").expect("an event") + 2];
        let body = side.body(&gateway, &mut client, &closing(&format!("{}0\r\n\r\n", chunk(half))));
        assert!(events(&body).pop().is_some_and(|last| last["error"]["message"].is_string()), "{body}");
        assert!(!body.contains(side.last), "{body}");
        drop(client);
        gateway.rests();
        assert_eq!(flagged(&gateway, "partial"), 1);
    }
}

#[test]
fn an_event_that_cannot_be_translated_ends_the_stream_behind_those_before_it() {
    for side in sides() {
        let gateway = side.gateway();
        let mut client = gateway.client();
        let at = side.stream.find("\u{e4}").expect("a text")
            + side.stream[side.stream.find("\u{e4}").unwrap_or(0)..].find("\n\n").expect("an end")
            + 2;
        let broken = format!("{}data: {{\"id\":\n\n{}", &side.stream[..at], &side.stream[at..]);
        let body = side.body(&gateway, &mut client, &closing(&format!("{}0\r\n\r\n", chunk(&broken))));
        assert!(body.contains("ab\u{e4}d"), "{body}");
        let last = events(&body).pop().expect("an event");
        assert_eq!(last["error"]["message"], "The provider sent a response that cannot be translated.", "{body}");
    }
}

#[test]
fn an_error_of_the_provider_within_a_stream_is_one_of_the_client() {
    let [to_messages, to_chat] = sides();
    for (side, error, kind) in [
        (
            to_messages,
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n",
            "server_error",
        ),
        (
            to_chat,
            "data: {\"error\":{\"message\":\"busy\",\"type\":\"server_error\",\"code\":429}}\n\n",
            "rate_limit_error",
        ),
    ] {
        let gateway = side.gateway();
        let mut client = gateway.client();
        let first = &side.stream[..side.stream.find("ab").expect("a text")];
        let first = &first[..first.rfind("\n\n").expect("an event") + 2];
        let stream = closing(&format!("{}0\r\n\r\n", chunk(&format!("{first}{error}"))));
        let body = side.body(&gateway, &mut client, &stream);
        let last = events(&body).pop().expect("an event");
        assert_eq!((&last["error"]["message"], &last["error"]["type"]), (&"busy".into(), &kind.into()), "{body}");
        assert!(!body.contains(side.last), "{body}");
    }
}
