//! Headers of real load balancers, and hostile ones.

use proptest::prelude::*;
use weir_base::limits::PROXY_HEADER_BYTES_MAX;
use weir_base::{Culprit, Violation};

use super::v2::{FIXED_BYTES, SIGNATURE};
use super::*;

fn whole(input: &[u8]) -> Result<ProxyHeader, Violation> {
    let (header, used) = decode(input, ProxyProtocol::Any)?.expect("a whole header");
    assert_eq!(used, input.len());
    Ok(header)
}

fn refused(input: &[u8]) -> &'static str {
    let violation = decode(input, ProxyProtocol::Any).expect_err("a violation");
    assert_eq!(violation.culprit, Culprit::Client);
    violation.reason
}

/// A version 2 header from its parts.
fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.extend_from_slice(&[command, family]);
    header.extend_from_slice(&(rest.len() as u16).to_be_bytes());
    header.extend_from_slice(rest);
    header
}

const TCP4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 0x18, 0xeb];

fn full() -> ProxyHeader {
    let (source, destination) = ("192.0.2.1:56324".parse().unwrap(), "198.51.100.7:6379".parse().unwrap());
    ProxyHeader {
        authority: Some("cache.example".to_owned()),
        tls: Some(ProxyTls {
            client_verified: true,
            version: Some("TLSv1.3".to_owned()),
            common_name: Some("app-1".to_owned()),
        }),
        ..ProxyHeader::tcp(ProxyVersion::V2, source, destination)
    }
}

#[test]
fn version_1_lines_of_the_specification() {
    let header = whole(b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n").unwrap();
    assert_eq!(header.client(), Some("255.255.255.255:65535".parse().unwrap()));
    let longest =
        b"PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(longest.len(), 104);
    assert_eq!(whole(longest).unwrap().client().unwrap().port(), 65535);
    let header = whole(b"PROXY TCP6 ::1 2001:DB8::ffff 0 6379\r\n").unwrap();
    let expected = ProxyAddresses::Ip {
        source: "[::1]:0".parse().unwrap(),
        destination: "[2001:db8::ffff]:6379".parse().unwrap(),
    };
    assert_eq!((header.version, header.command, header.addresses), (ProxyVersion::V1, ProxyCommand::Proxy, expected));
}

#[test]
fn an_unknown_line_is_taken_whatever_follows_up_to_107_bytes() {
    for line in [&b"PROXY UNKNOWN\r\n"[..], b"PROXY UNKNOWN ::1 ::1 1 2\r\n", b"PROXY UNKNOWN \xff\n\r\0\r\n"] {
        let header = whole(line).unwrap();
        assert_eq!((header.addresses.clone(), header.client()), (ProxyAddresses::Unknown, None));
    }
    let mut longest = b"PROXY UNKNOWN ".to_vec();
    longest.resize(V1_BYTES_MAX - 2, b'x');
    longest.extend_from_slice(b"\r\n");
    whole(&longest).unwrap();
    longest.insert(20, b'x');
    assert_eq!(refused(&longest), "proxy_header_too_long");
}

#[test]
fn a_version_1_line_that_is_not_exact_is_refused() {
    let wrong = [
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 65536",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 99999999999999999999",
        "PROXY TCP4 1.2.3.4 5.6.7.8 01 2",
        "PROXY TCP4 1.2.3.4 5.6.7.8 00 2",
        "PROXY TCP4 1.2.3.4 5.6.7.8 +1 2",
        "PROXY TCP4 1.2.3.4 5.6.7.8 -1 2",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 ",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 ",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3",
        "PROXY TCP4 1.2.3.4  5.6.7.8 1 2",
        "PROXY  TCP4 1.2.3.4 5.6.7.8 1 2",
        "PROXY TCP4\t1.2.3.4 5.6.7.8 1 2",
        "PROXY TCP4 1.2.3.04 5.6.7.8 1 2",
        "PROXY TCP4 1.2.3.256 5.6.7.8 1 2",
        "PROXY TCP4 1.2.3 5.6.7.8 1 2",
        "PROXY TCP4 0x1.2.3.4 5.6.7.8 1 2",
        "PROXY TCP4 ::1 ::1 1 2",
        "PROXY TCP6 1.2.3.4 5.6.7.8 1 2",
        "PROXY TCP6 ::1%eth0 ::1 1 2",
        "PROXY TCP6 [::1] ::1 1 2",
        "PROXY TCP6 1::2::3 ::1 1 2",
        "PROXY TCP4 a.example 5.6.7.8 1 2",
        "PROXY tcp4 1.2.3.4 5.6.7.8 1 2",
        "PROXY UDP4 1.2.3.4 5.6.7.8 1 2",
        "PROXY unknown",
        "PROXY UNKNOWNX",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n",
        "PROXY TCP4 1.2.3.4 5.6.7.8 1 \u{0662}",
        "PROXY ",
    ];
    for line in wrong {
        assert_eq!(refused(format!("{line}\r\n").as_bytes()), "proxy_header_malformed", "{line:?}");
    }
    assert_eq!(refused(b"PROXY TCP4 \xff.2.3.4 5.6.7.8 1 2\r\n"), "proxy_header_malformed");
    for line in ["proxy TCP4 1.2.3.4 5.6.7.8 1 2", "Proxy UNKNOWN", "PROXY\r\n", "PROXYTCP4", " PROXY UNKNOWN"] {
        assert_eq!(refused(line.as_bytes()), "proxy_header_missing", "{line:?}");
    }
}

#[test]
fn a_line_without_end_is_refused_at_its_limit() {
    let mut line = b"PROXY TCP4 1.2.3.4 ".to_vec();
    while line.len() < V1_BYTES_MAX - 1 {
        assert_eq!(decode(&line, ProxyProtocol::Any), Ok(None));
        line.push(b'1');
    }
    line.push(b'\n');
    let violation = decode(&line, ProxyProtocol::Any).unwrap_err();
    assert_eq!((violation.reason, violation.count, violation.limit), ("proxy_header_too_long", 107, 107));
}

#[test]
fn version_2_addresses_of_every_family() {
    let header = whole(&v2(0x21, 0x11, &TCP4)).unwrap();
    assert_eq!(header.client(), Some("192.0.2.1:56324".parse().unwrap()));
    let mut six = [0; 36];
    (six[15], six[31], six[33], six[35]) = (1, 2, 80, 81);
    let expected = ProxyAddresses::Ip { source: "[::1]:80".parse().unwrap(), destination: "[::2]:81".parse().unwrap() };
    assert_eq!(whole(&v2(0x21, 0x21, &six)).unwrap().addresses, expected);
    let mut unix = [0; 216];
    unix[..8].copy_from_slice(b"/run/a.s");
    unix[108..112].copy_from_slice(b"\0abs");
    let expected = ProxyAddresses::Unix { source: b"/run/a.s".to_vec(), destination: b"\0abs".to_vec() };
    assert_eq!(whole(&v2(0x21, 0x31, &unix)).unwrap().addresses, expected);
    // Datagrams, and what is said to be unspecified: the connection's own addresses count.
    for (family, rest) in [(0x12, &TCP4[..]), (0x10, &TCP4), (0x00, b""), (0x00, b"any"), (0x01, b"\xff\xff\xff")] {
        assert_eq!(whole(&v2(0x21, family, rest)).unwrap().addresses, ProxyAddresses::Unknown);
    }
}

#[test]
fn a_local_header_is_taken_and_its_content_discarded() {
    for (family, rest) in [(0x00, &b""[..]), (0x11, &TCP4), (0xff, b"\xff\xff\xff\xff")] {
        let header = whole(&v2(0x20, family, rest)).unwrap();
        assert_eq!((header.command, header.client()), (ProxyCommand::Local, None));
    }
}

#[test]
fn a_version_2_header_that_lies_is_refused() {
    let wrong = [
        v2(0x11, 0x11, &TCP4),
        v2(0x31, 0x11, &TCP4),
        v2(0x22, 0x11, &TCP4),
        v2(0x2f, 0x11, &TCP4),
        v2(0x21, 0x13, &TCP4),
        v2(0x21, 0x41, &TCP4),
        v2(0x21, 0xf1, &TCP4),
        v2(0x21, 0x11, &TCP4[..11]),
        v2(0x21, 0x11, b""),
        v2(0x21, 0x21, &[0; 35]),
        v2(0x21, 0x31, &[0; 215]),
    ];
    for header in wrong {
        assert_eq!(refused(&header), "proxy_header_malformed", "{header:x?}");
    }
}

#[test]
fn fields_that_run_past_their_end_are_refused() {
    let fields: [&[u8]; 10] = [
        b"\x04",
        b"\x04\x00",
        b"\x04\x00\x01",
        b"\x04\xff\xff",
        b"\x02\x00\x05abcd",
        b"\x03\x00\x03\0\0\0",
        b"\x03\x00\x05\0\0\0\0\0",
        b"\x20\x00\x04\x01\0\0\0",
        b"\x20\x00\x06\x01\0\0\0\0\x22",
        b"\x20\x00\x09\x01\0\0\0\0\x22\x00\x02a",
    ];
    for field in fields {
        assert_eq!(refused(&v2(0x21, 0x11, &[&TCP4, field].concat())), "proxy_header_malformed", "{field:x?}");
    }
}

#[test]
fn unknown_fields_are_skipped_and_odd_texts_left_out() {
    let fields = b"\x04\x00\x00\x05\x00\x03id1\x30\x00\x02ns\xea\x00\x01\x01\x02\x00\x03a\nb";
    let header = whole(&v2(0x21, 0x11, &[&TCP4, &fields[..]].concat())).unwrap();
    assert_eq!((&header.authority, &header.tls), (&None, &None));
    assert!(header.client().is_some());
    // TLS was not used; a certificate was shown but verification failed.
    for (flags, verify, expected) in [(0, 0, None), (3, 19, Some(false)), (3, 0, Some(true)), (1, 0, Some(false))] {
        let fields = [&TCP4[..], &[0x20, 0, 5, flags, 0, 0, 0, verify]].concat();
        assert_eq!(whole(&v2(0x21, 0x11, &fields)).unwrap().tls.map(|tls| tls.client_verified), expected);
    }
}

#[test]
fn a_claimed_length_past_the_limit_is_refused_at_once() {
    let limit = PROXY_HEADER_BYTES_MAX as usize;
    let mut header = v2(0x21, 0x11, &TCP4);
    header[14..16].copy_from_slice(&((limit - FIXED_BYTES) as u16).to_be_bytes());
    assert_eq!(decode(&header, ProxyProtocol::Any), Ok(None));
    header[14..16].copy_from_slice(&((limit - FIXED_BYTES + 1) as u16).to_be_bytes());
    assert_eq!(refused(&header[..FIXED_BYTES]), "proxy_header_too_long");
    header[14..16].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(refused(&header[..FIXED_BYTES]), "proxy_header_too_long");
}

#[test]
fn a_checksum_is_checked_bit_by_bit() {
    let mut good = Vec::new();
    full().encode_with_checksum(&mut good);
    assert_eq!(whole(&good), Ok(full()));
    for bit in FIXED_BYTES * 8..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        // A flip in the type of the checksum field makes it another field, which is skipped: that cannot be seen.
        let kind_of_checksum = good.len() - 7;
        if bit / 8 != kind_of_checksum {
            let reason = refused(&bad);
            assert!(matches!(reason, "proxy_checksum_wrong" | "proxy_header_malformed"), "{reason} at {bit}");
        }
    }
    let twice = [&TCP4[..], &[3, 0, 4, 0, 0, 0, 0, 3, 0, 4, 0, 0, 0, 0]].concat();
    assert!(["proxy_checksum_wrong", "proxy_header_malformed"].contains(&refused(&v2(0x21, 0x11, &twice))));
}

/// The first header of HAProxy's and of AWS's kind: one with the balancer's own field.
#[test]
fn a_load_balancers_own_field_is_skipped() {
    let aws = b"\xea\x00\x17\x01vpce-08d2bf15fac5001c9";
    let header = whole(&v2(0x21, 0x11, &[&TCP4, &aws[..]].concat())).unwrap();
    assert_eq!(header.client(), Some("192.0.2.1:56324".parse().unwrap()));
}

#[test]
fn every_truncation_asks_for_more_and_every_extension_is_left_alone() {
    let mut headers =
        vec![b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n".to_vec(), b"PROXY UNKNOWN\r\n".to_vec(), v2(0x20, 0, b"")];
    let mut header = Vec::new();
    full().encode_with_checksum(&mut header);
    headers.push(header);
    for header in headers {
        for cut in 0..header.len() {
            assert_eq!(decode(&header[..cut], ProxyProtocol::Any), Ok(None), "{cut} of {header:x?}");
        }
        let more = [&header[..], b"*1\r\n$4\r\nPING\r\n"].concat();
        assert_eq!(decode(&more, ProxyProtocol::Any).unwrap().unwrap().1, header.len());
    }
}

#[test]
fn a_listener_accepts_only_the_configured_versions() {
    let (one, two) = (&b"PROXY UNKNOWN\r\n"[..], &v2(0x20, 0, b"")[..]);
    for (accept, good, bad) in [(ProxyProtocol::V1, one, two), (ProxyProtocol::V2, two, one)] {
        assert!(decode(good, accept).unwrap().is_some());
        let violation = decode(bad, accept).unwrap_err();
        assert_eq!(violation.reason, "proxy_version_not_accepted");
        // The first byte tells.
        assert_eq!(decode(&bad[..1], accept).unwrap_err().reason, "proxy_version_not_accepted");
        assert_eq!(decode(b"", accept), Ok(None));
        assert!(decode(good, ProxyProtocol::Off).is_err());
    }
    for direct in [&b"*1\r\n$4\r\nPING\r\n"[..], b"\x16\x03\x01", b"GET / HTTP/1.1\r\n", b"PING\r\n", b"\r\nPING"] {
        assert_eq!(refused(direct), "proxy_header_missing");
    }
}

fn addresses() -> impl Strategy<Value = ProxyAddresses> {
    use std::net::{Ipv4Addr, Ipv6Addr};
    let four = any::<(u32, u32, u16, u16)>().prop_map(|(a, b, c, d)| ProxyAddresses::Ip {
        source: (Ipv4Addr::from(a), c).into(),
        destination: (Ipv4Addr::from(b), d).into(),
    });
    let six = any::<(u128, u128, u16, u16)>().prop_map(|(a, b, c, d)| ProxyAddresses::Ip {
        source: (Ipv6Addr::from(a), c).into(),
        destination: (Ipv6Addr::from(b), d).into(),
    });
    let path = || prop::collection::vec(1_u8.., 0..=108);
    let unix = (path(), path()).prop_map(|(source, destination)| ProxyAddresses::Unix { source, destination });
    prop_oneof![four, six, unix]
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of("[ -~]{1,60}|[a-zäß水]{1,60}")
}

proptest! {
    #[test]
    fn encoded_text_decodes_to_itself(
        addresses in addresses(),
        authority in text(),
        tls in prop::option::of((any::<bool>(), text(), text())),
        checksum in any::<bool>(),
    ) {
        let tls = tls.map(|(client_verified, version, common_name)| ProxyTls { client_verified, version, common_name });
        let header = ProxyHeader { version: ProxyVersion::V2, command: ProxyCommand::Proxy, addresses, authority, tls };
        let mut wire = Vec::new();
        if checksum { header.encode_with_checksum(&mut wire) } else { header.encode(&mut wire) }
        prop_assert_eq!(whole(&wire), Ok(header.clone()));
        if let ProxyAddresses::Ip { source, destination } = header.addresses {
            let line = ProxyHeader::tcp(ProxyVersion::V1, source, destination);
            let mut wire = Vec::new();
            line.encode(&mut wire);
            prop_assert_eq!(whole(&wire), Ok(line));
        }
    }

    #[test]
    fn random_bytes_never_panic_and_never_over_read(
        kind in 0_u8..4,
        family in any::<u8>(),
        length in 0_u16..300,
        bytes in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let head = match kind {
            0 => Vec::new(),
            1 => b"PROXY TCP4 ".to_vec(),
            2 => b"PROXY TCP6 ".to_vec(),
            _ => {
                let mut head = v2(0x21, family & 0x33, b"");
                head[14..16].copy_from_slice(&length.to_be_bytes());
                head
            }
        };
        let input = [head, bytes].concat();
        if let Ok(Some((_, used))) = decode(&input, ProxyProtocol::Any) {
            prop_assert!(used <= input.len());
            prop_assert_eq!(decode(&input[..used - 1], ProxyProtocol::Any), Ok(None));
        }
    }
}
