//! The demo's own clients: plain blocking sockets, so that what they check owes nothing to the gateway's code.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Commands that a client sends before it reads their replies.
pub const DEPTH: u64 = 8;
const CLIENTS: u64 = 16;
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// What the clients saw.
pub struct Traffic {
    pub connections: u64,
    pub requests: AtomicU64,
    /// Error replies.
    pub errors: AtomicU64,
    /// Values that were not what had been set, and connections that broke.
    pub wrong: AtomicU64,
    pub took: Duration,
}

impl Traffic {
    /// Runs clients against `address` for `length`.
    pub fn run(address: &'static str, length: Duration) -> Result<Self, String> {
        let traffic = Arc::new(Self {
            connections: CLIENTS,
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            took: length,
        });
        let begun = Instant::now();
        let client = |id: u64| {
            let traffic = traffic.clone();
            thread::spawn(move || traffic.client(id, address, begun + length))
        };
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        for client in clients {
            let ended = client.join().map_err(|_| "a demo client panicked".to_owned())?;
            if let Err(error) = ended {
                eprintln!("demo client: {error}");
                traffic.wrong.fetch_add(1, Ordering::Relaxed);
            }
        }
        let took = begun.elapsed();
        let traffic = Arc::into_inner(traffic).ok_or("a demo client is still running")?;
        Ok(Self { took, ..traffic })
    }

    /// Requests that did not end as they should.
    pub fn failures(&self) -> u64 {
        self.errors.load(Ordering::Relaxed) + self.wrong.load(Ordering::Relaxed)
    }

    fn client(&self, id: u64, address: &str, until: Instant) -> std::io::Result<()> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
        let mut replies = BufReader::new(socket.try_clone()?);
        let mut round = 0;
        while Instant::now() < until {
            let mut batch = Vec::new();
            for n in 0..DEPTH / 2 {
                let (key, value) = (format!("demo:{id}:{n}"), format!("{id}/{n}/{round}"));
                command(&mut batch, &["SET", &key, &value])?;
                command(&mut batch, &["GET", &key])?;
            }
            socket.write_all(&batch)?;
            for n in 0..DEPTH / 2 {
                self.check(&mut replies, b"OK")?;
                self.check(&mut replies, format!("{id}/{n}/{round}").as_bytes())?;
            }
            round += 1;
        }
        Ok(())
    }

    fn check(&self, replies: &mut impl BufRead, expected: &[u8]) -> std::io::Result<()> {
        let mut line = String::new();
        replies.read_line(&mut line)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let line = line.trim_end();
        let got = match line.split_at_checked(1) {
            Some(("+", text)) => text.as_bytes().to_vec(),
            Some(("$", length)) => {
                let length: usize = length.parse().map_err(std::io::Error::other)?;
                let mut value = vec![0; length + 2];
                replies.read_exact(&mut value)?;
                value.truncate(length);
                value
            }
            Some(("-", _)) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            _ => return Err(std::io::ErrorKind::UnexpectedEof.into()),
        };
        if got != expected {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn command(batch: &mut Vec<u8>, args: &[&str]) -> std::io::Result<()> {
    write!(batch, "*{}\r\n", args.len())?;
    args.iter().try_for_each(|arg| write!(batch, "${}\r\n{arg}\r\n", arg.len()))
}
