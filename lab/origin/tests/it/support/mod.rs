//! A raw client over TCP and the replies it reads.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use weir_origin::redis::{Mode, Origin, OriginSettings, start};
use weir_resp::{ReplyFramer, ReplyLimits, encode};

/// Nothing a test waits for takes longer on a healthy machine, however busy.
const DEADLINE: Duration = Duration::from_secs(30);

pub fn memory() -> Origin {
    start(OriginSettings::default()).expect("an origin")
}

pub fn fixed(payload: usize, workers: usize) -> Origin {
    let mode = Mode::Fixed { payload };
    start(OriginSettings { mode, workers, ..Default::default() }).expect("an origin")
}

pub struct Client {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect_timeout(&address, DEADLINE).expect("connect");
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        socket.set_nodelay(true).expect("no delay");
        Self { socket, received: Vec::new() }
    }

    pub fn to(origin: &Origin) -> Self {
        Self::connect(origin.addresses()[0])
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("send");
    }

    /// As [`Client::send`], to an origin that may have closed already.
    pub fn send_in_vain(&mut self, bytes: &[u8]) {
        match self.socket.write_all(bytes) {
            Err(error) if !matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                panic!("send: {error}")
            }
            _ => {}
        }
    }

    /// One reply, as it stands on the wire.
    pub fn reply(&mut self) -> Vec<u8> {
        let mut framer = ReplyFramer::new(ReplyLimits::default());
        let mut at = 0;
        loop {
            let scan = framer.advance(&self.received[at..]).expect("a well-formed reply");
            at += scan.taken;
            if scan.end.is_some() {
                return self.received.drain(..at).collect();
            }
            let mut chunk = [0; 16 * 1024];
            let count = self.socket.read(&mut chunk).expect("receive");
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&self.received));
            self.received.extend_from_slice(&chunk[..count]);
        }
    }

    /// Sends a command of words and reads its reply as text.
    pub fn ask(&mut self, command: &str) -> String {
        self.ask_args(&command.split(' ').collect::<Vec<_>>())
    }

    pub fn ask_args(&mut self, args: &[&str]) -> String {
        let mut bytes = Vec::new();
        encode::command(&mut bytes, args);
        self.send(&bytes);
        String::from_utf8(self.reply()).expect("text")
    }

    /// Asserts the reply to a command; CRLF is written as a blank.
    pub fn expect(&mut self, command: &str, reply: &str) {
        let got = self.ask(command).replace("\r\n", " ");
        assert_eq!(got.trim_end(), reply, "{command}");
    }

    /// All bytes until the origin closes.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.received);
        let mut chunk = [0; 4096];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(0) => return rest,
                Ok(count) => rest.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return rest,
                Err(error) => panic!("no end within the deadline: {error}"),
            }
        }
    }

    /// No more requests will come.
    pub fn finish(&mut self) {
        self.socket.shutdown(std::net::Shutdown::Write).expect("shutdown");
    }
}
