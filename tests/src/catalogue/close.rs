//! Section 7: how connections end.

use super::{
    Case, End,
    first::{BINARY, CLOSE, LAST, PING, TEXT, TEXT_AND_MORE},
};
use End::{Any, Closed, Failed};

/// Codes that a peer may send, and codes that it may not (RFC 6455 section 7.4).
const VALID: [u16; 13] = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999];
const INVALID: [u16; 9] = [0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999];
/// Registered later, or never.
const OPEN: [u16; 6] = [1012, 1013, 1014, 1015, 5000, 65_535];

pub(super) fn cases() -> Vec<Case> {
    let hello: &[u8] = b"Hello World!";
    let plain = with_code(1000, b"");
    let reason = |length: usize| with_code(1000, &vec![b'*'; length]);
    let large = vec![b'*'; 256 * 1024];
    let mut cases = vec![
        Case::of("7.1.1", Closed, &[(TEXT, hello), (CLOSE, &plain)]),
        Case::of("7.1.2", Closed, &[(CLOSE, &plain), (CLOSE, &plain)]),
        Case::of("7.1.3", Closed, &[(CLOSE, &plain), (PING, b"")]),
        Case::of("7.1.4", Closed, &[(CLOSE, &plain), (TEXT, hello)]),
        Case::of("7.1.5", Closed, &[(TEXT_AND_MORE, b"fragment1"), (CLOSE, &plain), (LAST, b"fragment2")]),
        Case::of("7.1.6", Closed, &[(TEXT, &large), (TEXT, hello), (CLOSE, &plain), (PING, b"")]),
        Case::of("7.3.1", Closed, &[(CLOSE, b"")]),
        Case::of("7.3.2", Failed, &[(CLOSE, b"a")]),
        Case::of("7.3.3", Closed, &[(CLOSE, &plain)]),
        Case::of("7.3.4", Closed, &[(CLOSE, &with_code(1000, hello))]),
        Case::of("7.3.5", Closed, &[(CLOSE, &reason(123))]),
        Case::of("7.3.6", Failed, &[(CLOSE, &reason(124))]),
        Case::of("7.5.1", Failed, &[(CLOSE, &with_code(1000, b"\xce\xba\xed\xa0\x80edited"))]),
        // Beyond the catalogue.
        Case::in_pieces("7.1.7", Closed, &[(CLOSE, &with_code(1000, hello))]),
        Case::of("7.1.8", Failed, &[(0x08, &plain)]),
        Case::of("7.1.9", Closed, &[(BINARY, b""), (CLOSE, &with_code(4000, "κόσμε".as_bytes()))]),
    ];
    let ending = |section: &str, codes: &[u16], end| -> Vec<Case> {
        let numbered = codes.iter().enumerate();
        let each = numbered.flat_map(|(number, code)| {
            let id = format!("{section}.{}", number + 1);
            let with_reason = Case::of(format!("{id}.1"), end, &[(CLOSE, &with_code(*code, hello))]);
            [Case::of(id, end, &[(CLOSE, &with_code(*code, b""))]), with_reason]
        });
        each.collect()
    };
    cases.extend(ending("7.7", &VALID, Closed));
    cases.extend(ending("7.9", &INVALID, Failed));
    cases.extend(ending("7.13", &OPEN, Any));
    cases
}

fn with_code(code: u16, reason: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], reason].concat()
}
