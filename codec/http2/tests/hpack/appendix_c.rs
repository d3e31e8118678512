//! RFC 7541 appendix C. C.1 is in the unit tests of integers.

use weir_http2_codec::hpack::Decoder;

use crate::support::{Owned, decoded, hex, owned, table};

/// A block, its fields, the table behind it with the newest field first, and the table's size.
struct Example {
    block: &'static str,
    fields: Vec<Owned>,
    table: Vec<Owned>,
    size: usize,
}

/// Decodes the blocks of one direction, one after the other.
fn check(table_bytes_max: u32, examples: &[Example]) {
    let mut decoder = Decoder::new(table_bytes_max);
    for Example { block, fields, table: expected, size } in examples {
        assert_eq!(decoded(&mut decoder, &hex(block)).as_ref(), Ok(fields), "{block}");
        assert_eq!(&table(&mut decoder), expected, "{block}");
        assert_eq!(expected.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>(), *size);
    }
}

fn single(block: &'static str, field: (&str, &str), table: &[(&str, &str)], size: usize) {
    check(4096, &[Example { block, fields: owned(&[field]), table: owned(table), size }]);
}

#[test]
fn c2_fields_in_each_representation() {
    let block = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    let field = ("custom-key", "custom-header");
    single(block, field, &[field], 55);
    single("040c 2f73 616d 706c 652f 7061 7468", (":path", "/sample/path"), &[], 0);
    single("1008 7061 7373 776f 7264 0673 6563 7265 74", ("password", "secret"), &[], 0);
    single("82", (":method", "GET"), &[], 0);
}

const AUTHORITY: (&str, &str) = (":authority", "www.example.com");
const NO_CACHE: (&str, &str) = ("cache-control", "no-cache");
const CUSTOM: (&str, &str) = ("custom-key", "custom-value");

fn requests(blocks: [&'static str; 3]) {
    let [first, second, third] = blocks;
    let get = [(":method", "GET"), (":scheme", "http"), (":path", "/"), AUTHORITY];
    let index = [(":method", "GET"), (":scheme", "https"), (":path", "/index.html"), AUTHORITY, CUSTOM];
    let examples = [
        Example { block: first, fields: owned(&get), table: owned(&[AUTHORITY]), size: 57 },
        Example {
            block: second,
            fields: owned(&[get[0], get[1], get[2], get[3], NO_CACHE]),
            table: owned(&[NO_CACHE, AUTHORITY]),
            size: 110,
        },
        Example { block: third, fields: owned(&index), table: owned(&[CUSTOM, NO_CACHE, AUTHORITY]), size: 164 },
    ];
    check(4096, &examples);
}

#[test]
fn c3_requests_without_huffman_code() {
    requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn c4_requests_in_huffman_code() {
    requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

fn responses(blocks: [&'static str; 3]) {
    const FOUND: (&str, &str) = (":status", "302");
    const REDIRECT: (&str, &str) = (":status", "307");
    const PRIVATE: (&str, &str) = ("cache-control", "private");
    const DATE: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    const LATER: (&str, &str) = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
    const LOCATION: (&str, &str) = ("location", "https://www.example.com");
    const GZIP: (&str, &str) = ("content-encoding", "gzip");
    const COOKIE: (&str, &str) = ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
    let [first, second, third] = blocks;
    let examples = [
        Example {
            block: first,
            fields: owned(&[FOUND, PRIVATE, DATE, LOCATION]),
            table: owned(&[LOCATION, DATE, PRIVATE, FOUND]),
            size: 222,
        },
        Example {
            block: second,
            fields: owned(&[REDIRECT, PRIVATE, DATE, LOCATION]),
            table: owned(&[REDIRECT, LOCATION, DATE, PRIVATE]),
            size: 222,
        },
        Example {
            block: third,
            fields: owned(&[(":status", "200"), PRIVATE, LATER, LOCATION, GZIP, COOKIE]),
            table: owned(&[COOKIE, GZIP, LATER]),
            size: 215,
        },
    ];
    check(256, &examples);
}

#[test]
fn c5_responses_without_huffman_code_evict() {
    responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d \
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f \
         6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b \
         2076 6572 7369 6f6e 3d31",
    ]);
}

#[test]
fn c6_responses_in_huffman_code_evict() {
    responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 \
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 \
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
}
