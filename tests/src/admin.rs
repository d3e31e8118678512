//! The admin port, spoken by hand so that the tests see exactly what it answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::metrics::Metrics;

/// A response of the admin port.
#[derive(Debug)]
pub struct AdminResponse {
    /// HTTP status.
    pub status: u16,
    /// Head, as it came.
    pub head: String,
    /// Body, as text.
    pub body: String,
    /// From connecting to the last byte.
    pub elapsed: Duration,
}

impl AdminResponse {
    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.body))
    }
}

/// The admin port of one gateway.
#[derive(Clone, Copy, Debug)]
pub struct Admin {
    /// Where it listens.
    pub address: SocketAddr,
}

impl Admin {
    /// GET.
    ///
    /// # Panics
    /// If there is no response.
    pub fn get(&self, path: &str) -> AdminResponse {
        self.request("GET", path, &[], "").unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    /// POST with a JSON body.
    ///
    /// # Panics
    /// If there is no response.
    pub fn post(&self, path: &str, body: &str) -> AdminResponse {
        self.request("POST", path, &[("Content-Type", "application/json")], body)
            .unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// Any request, with more header fields.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> std::io::Result<AdminResponse> {
        let started = Instant::now();
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(5))?;
        stream.set_read_timeout(Some(Duration::from_secs(15)))?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !fields.iter().any(|(name, _)| *name == "Host") {
            head += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes())?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let elapsed = started.elapsed();
        parse(&bytes, elapsed)
            .ok_or_else(|| std::io::Error::other(format!("no HTTP response: {}", String::from_utf8_lossy(&bytes))))
    }

    /// Scrapes `/metrics`.
    ///
    /// # Panics
    /// If it is not served.
    pub fn metrics(&self) -> Metrics {
        let response = self.get("/metrics");
        assert_eq!(response.status, 200, "/metrics: {}", response.body);
        Metrics::parse(&response.body)
    }

    /// Whether `/readyz` answers 200 now.
    pub fn is_ready(&self) -> bool {
        self.request("GET", "/readyz", &[], "").is_ok_and(|response| response.status == 200)
    }
}

fn parse(bytes: &[u8], elapsed: Duration) -> Option<AdminResponse> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { joined_chunks(body)? } else { body.to_owned() };
    Some(AdminResponse { status, head: head.to_owned(), body, elapsed })
}

fn joined_chunks(mut rest: &str) -> Option<String> {
    let mut body = String::new();
    loop {
        let (size, behind) = rest.split_once("\r\n")?;
        let size = usize::from_str_radix(size.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.push_str(behind.get(..size)?);
        rest = behind.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunked_and_plain_bodies_are_read() {
        let plain = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        let response = parse(plain, Duration::ZERO).expect("a response");
        assert_eq!((response.status, response.body.as_str()), (200, "hi"));
        let chunked = b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        let response = parse(chunked, Duration::ZERO).expect("a response");
        assert_eq!((response.status, response.body.as_str()), (404, "abcd"));
    }
}
