//! Requests and checks without a connection.

use crate::requests::{Integrity, Requests};
use crate::scenario::{self, AiWorkload, Scenario};
use crate::shard::Shard;

fn scenario(ai: &str, payload: &str) -> Scenario {
    let source =
        format!("name = \"s\"\nprotocol = \"ai\"\n{payload}\n[ai]\n{ai}\n[[phase]]\nrate = 10\nduration = \"1s\"\n");
    scenario::parse("s.toml", &source).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn requests(scenario: &Scenario) -> Requests {
    Requests::build(scenario, Shard::new(1, 2).expect("a shard"), 20)
}

fn body(requests: &Requests, index: u64) -> serde_json::Value {
    let text = String::from_utf8(requests.bytes(index).to_vec()).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    assert!(format!("{head}\r\n").contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
    serde_json::from_str(body).expect("JSON")
}

/// The word of request `index`.
fn word(requests: &Requests, index: u64) -> String {
    let text = String::from_utf8_lossy(requests.bytes(index)).into_owned();
    text.split_once("word=").expect("a word").1[..8].to_owned()
}

fn text(word: &str, bytes: usize) -> String {
    let groups: String = (0..bytes.div_ceil(16)).map(|number| format!("{word}{number:07x} ")).collect();
    groups[..bytes].to_owned()
}

#[test]
fn prompts_are_json_and_say_what_they_want() {
    let scenario = scenario("workload = \"agent\"\ntools = 3\nkey = \"k\"\nprompt_bytes = 100", "");
    assert_eq!(scenario.ai.workload, AiWorkload::Agent);
    let requests = requests(&scenario);
    let body = body(&requests, 0);
    assert_eq!((body["tools"].as_array().map(Vec::len), &body["model"]), (Some(3), &"weir-small".into()));
    let last = body["messages"].as_array().and_then(|all| all.last()).expect("a message");
    let content = last["content"].as_str().expect("text");
    assert!(content.contains("[weir prompt=25 calls=1 word="), "{content}");
    assert!(String::from_utf8_lossy(requests.bytes(0)).contains("Authorization: Bearer k\r\n"));
    assert_ne!(word(&requests, 0), word(&requests, 1));
}

#[test]
fn a_whole_reply_is_right_to_the_last_byte_and_token_or_wrong() {
    let requests = requests(&scenario("prompt_bytes = 40", "payload.size = 100"));
    let reply = |text: &str, prompt: u32, finish: &str| {
        format!(
            "{{\"id\":\"x\",\"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}},\
             \"finish_reason\":\"{finish}\"}}],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":25,\
             \"total_tokens\":{}}}}}",
            prompt + 25
        )
    };
    let right = text(&word(&requests, 3), 100);
    let check = |text: &str| requests.check(3, text.as_bytes());
    assert_eq!(check(&reply(&right, 10, "stop")), Some(Integrity::Ok));
    assert_eq!(check(&reply("", 10, "stop")), Some(Integrity::Missing));
    let foreign = text(&word(&requests, 4), 100);
    for wrong in [
        reply(&foreign, 10, "stop"),
        reply(&right[..99], 10, "stop"),
        reply(&format!("{right}x"), 10, "stop"),
        reply(&right, 11, "stop"),
        reply(&right, 10, "length"),
        reply(&right, 10, "stop").replace("completion_tokens\":25", "completion_tokens\":24"),
        "{\"error\":{}}".to_owned(),
        String::new(),
    ] {
        assert_eq!(check(&wrong), Some(Integrity::Mismatch), "{wrong}");
    }
}

#[test]
fn a_stream_is_right_if_its_pieces_are_and_it_is_done() {
    let requests = requests(&scenario("workload = \"stream\"\nevents = 2\nprompt_bytes = 40", "payload.size = 40"));
    assert_eq!(body(&requests, 0)["stream_options"]["include_usage"], true);
    let right = text(&word(&requests, 0), 40);
    let piece = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n")
    };
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":10,\"total_tokens\":20}}\n\n";
    let done = "data: [DONE]\n\n";
    let check = |text: &str| requests.check(0, text.as_bytes());
    let [one, two] = [piece(&right[..21]), piece(&right[21..])];
    assert_eq!(check(&format!(": hello\n\n{one}{two}{end}{done}")), Some(Integrity::Ok));
    assert_eq!(check(&format!("{one}{two}{end}{done}").replace('\n', "\r\n")), Some(Integrity::Ok));
    for wrong in [
        format!("{one}{two}{end}"),
        format!("{two}{one}{end}{done}"),
        format!("{one}{end}{done}"),
        format!("{one}{two}{done}"),
        format!("{one}{two}{end}{done}{two}"),
        format!("{one}data: {{\"error\":{{\"message\":\"x\"}}}}\n\n{two}{end}{done}"),
    ] {
        assert_eq!(check(&wrong), Some(Integrity::Mismatch), "{wrong}");
    }
}

#[test]
fn keys_of_another_workload_are_mistakes() {
    for (ai, payload, part) in [
        ("events = 3", "", "only for streams"),
        ("workload = \"stream\"\ngap = \"1ms\"", "", "only for workload = \"paced\""),
        ("tools = 3", "", "only for workload = \"agent\""),
        ("workload = \"agent\"", "payload.size = 5", "has no meaning for an agent"),
        ("", "payload = [{ size = 5 }, { size = 6 }]", "several sizes"),
        ("model = \"a\\\"b\"", "", "visible characters"),
        ("key = \"a b\"", "", "no key has"),
        ("workload = \"chat\"", "", "llm, stream, paced, agent"),
    ] {
        let source = format!(
            "name = \"s\"\nprotocol = \"ai\"\n{payload}\n[ai]\n{ai}\n[[phase]]\nrate = 10\nduration = \"1s\"\n"
        );
        let mistakes = scenario::parse("s.toml", &source).expect_err(ai).to_string();
        assert!(mistakes.contains(part), "{ai}: {mistakes}");
    }
}
