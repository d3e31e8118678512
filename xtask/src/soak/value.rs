//! Values that tell whose they are: writer, number, and a filler that follows from both. A reply that went to the wrong
//! client, or is an old one, or lost its tail, does not pass.

use weir_base::rng::Rng;

/// Most values are small; one in sixteen is a few KiB, one in 256 is 80 KiB and thus streamed by the gateway.
const LARGE_BYTES: usize = 80 << 10;

/// The key of a client.
pub(crate) fn key(client: usize) -> Vec<u8> {
    format!("soak:{client}").into_bytes()
}

/// The value that a client writes as its `number`th.
pub(crate) fn value(client: usize, number: u64) -> Vec<u8> {
    let mut rng = Rng::new((client as u64) << 40 ^ number);
    let length = match rng.next_u64() % 256 {
        0 => LARGE_BYTES,
        1..=15 => 1_024 + (rng.next_u64() % 8_192) as usize,
        _ => (rng.next_u64() % 256) as usize,
    };
    let mut value = format!("{client}:{number}:").into_bytes();
    while value.len() < length {
        value.extend_from_slice(format!("{:016x}", rng.next_u64()).as_bytes());
    }
    value
}

/// The number of a value, if it is one that this client wrote, whole and unchanged.
pub(crate) fn number(client: usize, bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number = text.split(':').nth(1)?.parse().ok()?;
    (bytes == value(client, number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_passes_only_whole_and_only_for_its_writer() {
        for number_written in 0..1_000 {
            let bytes = value(7, number_written);
            assert_eq!(number(7, &bytes), Some(number_written));
            assert_eq!(number(8, &bytes), None);
            assert_eq!(number(7, &bytes[..bytes.len() - 1]), None);
        }
        assert!((0..1_000).any(|number| value(3, number).len() >= LARGE_BYTES), "some are streamed");
    }
}
