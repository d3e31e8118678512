//! Measures the cost of a scan: `cargo run --release -p weir-json-codec --example json_cost`.

use std::hint::black_box;
use std::time::Instant;

use weir_json_codec::{Duplicates, Node, Scanner, Sink, Value};

static TOOL: Node<()> = Node::NEW.members(&[("function", Node::NEW.members(&[("name", Node::value(()))]))]);
static REQUEST: Node<()> = Node::NEW.members(&[
    ("model", Node::value(())),
    ("stream", Node::value(())),
    ("stream_options", Node::NEW.members(&[("include_usage", Node::value(()))])),
    ("max_tokens", Node::value(())),
    ("messages", Node::value(())),
    ("tools", Node::value(()).items(&TOOL)),
    ("user", Node::value(())),
]);

#[derive(Default)]
struct Count(usize);

impl Sink<()> for Count {
    fn value(&mut self, _: Value<'_, ()>) {
        self.0 += 1;
    }
}

fn request(prompt: &str, tools: usize) -> String {
    let parameters = r#"{"type":"object","properties":{"city":{"type":"string","description":"The city and the country"},"unit":{"type":"string","enum":["celsius","fahrenheit"]}},"required":["city"],"additionalProperties":false}"#;
    let tools: Vec<String> = (0..tools)
        .map(|at| format!(r#"{{"type":"function","function":{{"name":"weather_{at}","description":"The weather of a city today","strict":true,"parameters":{parameters}}}}}"#))
        .collect();
    format!(
        r#"{{"model":"gpt-4o-mini","messages":[{{"role":"system","content":"You help."}},{{"role":"user","content":"{prompt}"}}],"stream":true,"stream_options":{{"include_usage":true}},"max_tokens":256,"tools":[{}],"user":"u-17"}}"#,
        tools.join(",")
    )
}

fn main() {
    let plain = "The quick brown fox jumps over the lazy dog. ";
    let lines = "Every line\\n of this \\\"text\\\" has some escapes.\\n";
    let chinese = "\u{654f}\u{6377}\u{7684}\u{68d5}\u{8272}\u{72d0}\u{72f8}\u{8df3}\u{8fc7}\u{4e86}\u{61d2}\u{72d7}";
    for (name, text) in [
        ("512 B of prompt", request(&plain.repeat(11), 0)),
        ("8 tools", request(plain, 8)),
        ("64 tools", request(plain, 64)),
        ("100 KiB of ASCII", request(&plain.repeat(2276), 0)),
        ("100 KiB with escapes", request(&lines.repeat(2049), 0)),
        ("100 KiB of Chinese", request(&chinese.repeat(2844), 0)),
    ] {
        let nanoseconds = (0..200).map(|_| scan(text.as_bytes())).min().expect("rounds");
        println!(
            "{name}: {} bytes, {nanoseconds} ns, {:.2} bytes/ns",
            text.len(),
            text.len() as f64 / nanoseconds as f64
        );
    }
}

/// Nanoseconds for the text.
fn scan(text: &[u8]) -> u128 {
    let (mut scanner, mut count) = (Scanner::new(&REQUEST, Duplicates::Refuse), Count::default());
    let begin = Instant::now();
    scanner.push(black_box(text), &mut count).expect("valid");
    scanner.finish(&mut count).expect("whole");
    let passed = begin.elapsed().as_nanos();
    assert!(count.0 >= 7);
    passed
}
