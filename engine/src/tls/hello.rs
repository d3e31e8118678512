//! The first message of a client, read without answering it.

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
}
