//! The first message of a client, read without a response.

use std::io;

use rustls::server::Acceptor;

/// A client hello on its way in.
#[derive(Default)]
pub struct ClientHello {
    acceptor: Acceptor,
}

impl ClientHello {
    /// Reads on; once the hello is whole, the server name that it asks for, in lower case, if it names one (RFC 6066 section 3).
    ///
    /// # Errors
    /// It is no hello.
    pub fn read(&mut self, mut bytes: &[u8]) -> io::Result<Option<Option<String>>> {
        while !bytes.is_empty() {
            self.acceptor.read_tls(&mut bytes)?;
            let accepted =
                self.acceptor.accept().map_err(|(error, _)| io::Error::new(io::ErrorKind::InvalidData, error))?;
            if let Some(accepted) = accepted {
                let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

/// The type of a record that carries a part of the handshake, and the first byte of the version that all records name (RFC 8446 section 5.1).
const HANDSHAKE: [u8; 2] = [22, 3];

/// The alert for a first message that is none of the handshake: fatal, `unexpected_message` (RFC 8446 sections 5 and 6).
pub const UNEXPECTED_MESSAGE_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 10];

/// How far the first message of a client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstMessage {
    /// More bytes have to come.
    Partial,
    /// The message is there, with the whole of its last record: a session has something to do, and waits for no further byte of it.
    Whole,
    /// A record is none of the handshake, so no message can come of it.
    NoHandshake,
}

/// Reads the heads of the records that a client sent first, and the length of its message, no more.
pub fn first_message(received: &[u8]) -> FirstMessage {
    let (mut records, mut head, mut have) = (received, 0_u32, 0_usize);
    loop {
        if records.iter().zip(&HANDSHAKE).any(|(byte, expected)| byte != expected) {
            return FirstMessage::NoHandshake;
        }
        let [_, _, _, high, low, rest @ ..] = records else { return FirstMessage::Partial };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        // A session does not look into a record before its last byte is there.
        let Some((part, behind)) = rest.split_at_checked(length) else { return FirstMessage::Partial };
        // The kind of the message and its length, four bytes, may be in several records too.
        part.iter().take(4_usize.saturating_sub(have)).for_each(|byte| head = head << 8 | u32::from(*byte));
        have += part.len();
        if have >= 4 && have - 4 >= (head & 0xff_ffff) as usize {
            return FirstMessage::Whole;
        }
        records = behind;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::aws_lc_rs};

    use super::*;

    fn hello(name: &'static str) -> Vec<u8> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
        let mut client = ClientConnection::new(config, name.try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_name_is_found_however_the_hello_is_cut() {
        let bytes = hello("a.example");
        for at in [1, 5, 6, 100, bytes.len() - 1] {
            let mut reader = ClientHello::default();
            assert!(reader.read(&bytes[..at]).unwrap().is_none(), "{at}");
            assert_eq!(reader.read(&bytes[at..]).unwrap(), Some(Some("a.example".to_owned())), "{at}");
        }
        let mut slow = ClientHello::default();
        let whole = bytes.iter().find_map(|byte| slow.read(&[*byte]).unwrap());
        assert_eq!(whole, Some(Some("a.example".to_owned())));
    }

    #[test]
    fn a_hello_need_not_have_a_name_and_other_bytes_are_none() {
        assert_eq!(ClientHello::default().read(&hello("192.0.2.1")).unwrap(), Some(None));
        assert!(ClientHello::default().read(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").is_err());
    }

    #[test]
    fn a_first_message_is_whole_with_its_last_byte_however_it_is_cut() {
        let bytes = hello("a.example");
        // The same message in records of one byte each.
        let dripped: Vec<u8> = bytes[5..].iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
        for bytes in [bytes, dripped] {
            for at in 0..bytes.len() {
                assert_eq!(first_message(&bytes[..at]), FirstMessage::Partial, "{at}");
            }
            assert_eq!(first_message(&bytes), FirstMessage::Whole);
            assert_eq!(first_message(&[&bytes[..], b"more"].concat()), FirstMessage::Whole);
        }
        // A message of another kind is for the session to refuse, as soon as it is whole.
        assert_eq!(first_message(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), FirstMessage::Whole);
    }

    #[test]
    fn a_message_is_partial_while_a_session_would_wait_for_the_rest_of_its_record() {
        for bytes in [&[22, 3, 1, 64, 0, 1, 0, 0, 0][..], &[22, 3, 1, 0, 5, 2, 0, 255, 255, 0], &[22, 3, 1, 0, 0]] {
            assert_eq!(first_message(bytes), FirstMessage::Partial, "{bytes:?}");
        }
    }

    #[test]
    fn a_record_that_is_none_of_the_handshake_is_seen_at_its_first_wrong_byte() {
        let begun = [22, 3, 1, 0, 1, 1];
        for bytes in [&b"G"[..], b"GET / HTTP/1.1", &[0x80], &[22, 9], &[20], &[21, 3, 1, 0, 2], &[23], &[24]] {
            assert_eq!(first_message(bytes), FirstMessage::NoHandshake, "{bytes:?}");
            assert_eq!(first_message(&[&begun, bytes].concat()), FirstMessage::NoHandshake, "{bytes:?} in a hello");
        }
    }
}
