//! Any bytes as the first of a TLS client, whose hello a listener by server name reads.

use weir_engine::tls::ClientHello;

/// Bytes of a TLS record's head, and the most that one has behind it (RFC 8446 section 5.1).
const RECORD_HEAD_BYTES: usize = 5;
/// Bytes without the end of a hello after which nothing is a hello any more: rustls takes none of more than 64 KiB.
const UNDECIDED_BYTES_MAX: usize = 128 * 1024;

/// A verdict: how many bytes had to be seen, and the name or that there is no hello.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Undecided,
    Name(Option<String>),
    NoHello,
}

/// Cuts change no verdict, the name stands in the hello, and what follows a hello changes nothing.
pub fn tcp_client_hello(data: &[u8]) {
    let whole = read(data, data.len().max(1));
    for piece in [1, 2, 7, 64] {
        assert_eq!(read(data, piece), whole, "pieces of {piece}");
    }
    match &whole {
        Seen::Undecided => assert!(data.len() < UNDECIDED_BYTES_MAX),
        Seen::NoHello => {}
        Seen::Name(name) => {
            if let Some(name) = name {
                let hello = without_record_heads(data).to_ascii_lowercase();
                let is_there = hello.windows(name.len()).any(|bytes| bytes == name.as_bytes());
                assert!(!name.is_empty() && is_there, "{name} is not in the hello");
                assert_eq!(*name, name.to_ascii_lowercase());
            }
            let longer = [data, b"\x17\x03\x03\x00\x01x"].concat();
            assert_eq!(read(&longer, longer.len()), whole, "with more behind it");
        }
    }
}

fn read(data: &[u8], piece: usize) -> Seen {
    let mut hello = ClientHello::default();
    for bytes in data.chunks(piece) {
        match hello.read(bytes) {
            Ok(None) => {}
            Ok(Some(name)) => return Seen::Name(name),
            Err(_) => return Seen::NoHello,
        }
    }
    Seen::Undecided
}

/// A name may begin in one record and end in the next.
fn without_record_heads(mut data: &[u8]) -> Vec<u8> {
    let mut joined = Vec::new();
    while let Some((head, rest)) = data.split_at_checked(RECORD_HEAD_BYTES) {
        let length = usize::from(u16::from_be_bytes([head[3], head[4]])).min(rest.len());
        joined.extend_from_slice(&rest[..length]);
        data = &rest[length..];
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello that claims 16 MiB and goes on for ever, in the largest records and in the smallest.
    #[test]
    fn a_hello_without_an_end_is_refused_within_the_bound() {
        for length in [1, 16 * 1024] {
            let body = [b"\x01\xff\xff\xff".to_vec(), vec![0; UNDECIDED_BYTES_MAX]].concat();
            let record = |part: &[u8]| [b"\x16\x03\x01", &(part.len() as u16).to_be_bytes()[..], part].concat();
            let data: Vec<u8> = body.chunks(length).flat_map(record).take(UNDECIDED_BYTES_MAX).collect();
            assert_eq!(read(&data, data.len()), Seen::NoHello, "records of {length}");
            tcp_client_hello(&data);
        }
    }
}
