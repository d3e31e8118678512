//! The cost of header blocks, in instructions: run it under callgrind, once for each part, and divide by the rounds.
//!
//! ```sh
//! cargo build --release -p weir-http2-codec --example hpack_cost
//! valgrind --tool=callgrind target/release/examples/hpack_cost encode-request
//! ```

use std::hint::black_box;

use weir_http2_codec::hpack::{Decoder, Encoder, TABLE_BYTES_DEFAULT};

const ROUNDS: usize = 10_000;

/// Name and value.
type Field<'a> = (&'a [u8], &'a [u8]);

/// A request of a browser; its path differs each time.
const REQUEST: [Field<'static>; 8] = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":authority", b"shop.example.com"),
    (b":path", b""),
    (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate, br"),
    (b"cookie", b"session=0123456789abcdef0123456789abcdef"),
];

/// A response; its length differs each time.
const RESPONSE: [Field<'static>; 6] = [
    (b":status", b"200"),
    (b"server", b"weir"),
    (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT"),
    (b"content-type", b"application/json"),
    (b"content-length", b""),
    (b"cache-control", b"no-store"),
];

fn main() {
    let part = std::env::args().nth(1).unwrap_or_else(|| "encode-request".to_owned());
    let (message, is_request): (&[Field<'_>], _) =
        if part.ends_with("request") { (&REQUEST, true) } else { (&RESPONSE, false) };
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(TABLE_BYTES_DEFAULT));
    let (mut block, mut bytes, mut fields) = (Vec::with_capacity(1024), 0, 0);
    let own: Vec<String> = (0..ROUNDS)
        .map(|round| if is_request { format!("/items/{round:05}?page=2") } else { (round + 100).to_string() })
        .collect();
    let fill =
        |own| message.iter().map(move |&(name, value): &Field<'_>| (name, if value.is_empty() { own } else { value }));
    let messages: Vec<Vec<Field<'_>>> = own.iter().map(|own| fill(own.as_bytes()).collect()).collect();
    let blocks: Vec<Vec<u8>> = messages
        .iter()
        .map(|message| {
            // A connection of its own for each message, with all its literals.
            if part.starts_with("first") {
                encoder = Encoder::new();
            }
            block.clear();
            encode(&mut encoder, &mut block, message);
            block.clone()
        })
        .collect();
    if part.contains("decode") {
        for block in &blocks {
            if part.starts_with("first") {
                decoder = Decoder::new(TABLE_BYTES_DEFAULT);
            }
            let account = decode(&mut decoder, block, &mut bytes);
            fields += account;
        }
    }
    println!(
        "{part}: {} bytes of blocks, {fields} fields of {bytes} bytes",
        blocks.iter().map(Vec::len).sum::<usize>()
    );
}

/// For callgrind: `--toggle-collect='*cost::encode*'`.
#[inline(never)]
fn encode(encoder: &mut Encoder, block: &mut Vec<u8>, message: &[Field<'_>]) {
    encoder.begin(block);
    for (name, value) in message {
        encoder.field(block, name, value);
    }
    black_box(block);
}

/// For callgrind: `--toggle-collect='*cost::decode*'`.
#[inline(never)]
fn decode(decoder: &mut Decoder, block: &[u8], bytes: &mut usize) -> usize {
    let account = decoder.decode(black_box(block), 64 * 1024, |field| *bytes += black_box(field).value.len());
    account.expect("valid").fields
}
