//! The process that listens at an address, as far as `/proc` shows it to this one.

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use crate::{net, settings::Address};

/// `st` of a listening socket in `/proc/net/tcp` (`TCP_LISTEN` of the kernel's `tcp_states.h`).
const TCP_LISTEN: &str = "0A";

/// A process that listens at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupant {
    /// Its id.
    pub pid: u32,
    /// Its name, as the kernel has it (`comm`).
    pub name: String,
}

impl Occupant {
    /// The process that listens at `address`. `None`: there is none, or it is another user's, or of another container.
    #[must_use]
    pub fn of(address: &Address) -> Option<Self> {
        let inodes = inodes(address);
        if inodes.is_empty() {
            return None;
        }
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pid = pids.find(|pid| holds(*pid, &inodes))?;
        Some(Self { pid, name: name_of(pid)? })
    }

    /// True if it is a process of the same program as this one.
    #[must_use]
    pub fn is_same_program(&self) -> bool {
        name_of(std::process::id()).as_ref() == Some(&self.name)
    }
}

impl fmt::Display for Occupant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// Returns true if a socket listens at `address`, whether or not this process may see which process holds it. The kernel hides that of
/// other users and of processes with more capabilities, and the socket of a process that has ended may outlive it for a moment.
#[must_use]
pub fn is_listened_on(address: &Address) -> bool {
    !inodes(address).is_empty()
}

/// The error of an address that is in use: it names the process that listens there, if that can be found.
#[must_use]
pub fn in_use(address: &Address) -> io::Error {
    let text = match Occupant::of(address) {
        Some(occupant) => format!("{occupant} listens there already"),
        None if is_listened_on(address) => "another process listens there already".to_owned(),
        None => {
            "it is in use, and no process listens there; a connection, or a process that is starting, may have the port"
                .to_owned()
        }
    };
    io::Error::new(io::ErrorKind::AddrInUse, text)
}

/// The sockets that listen at `address`.
fn inodes(address: &Address) -> Vec<String> {
    match address {
        Address::Unix(path) => unix_inodes(path),
        other => net::resolve_one(other).map(tcp_inodes).unwrap_or_default(),
    }
}

fn name_of(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned())
}

/// True if one of the descriptors of the process is one of these sockets.
fn holds(pid: u32, inodes: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let is_one = |target: &Path| {
        let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.iter().any(|one| one == inode))
    };
    descriptors.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|target| is_one(&target)))
}

/// The listening TCP sockets that keep others from `target`.
fn tcp_inodes(target: SocketAddr) -> Vec<String> {
    let files = if target.is_ipv4() { &["/proc/net/tcp", "/proc/net/tcp6"][..] } else { &["/proc/net/tcp6"] };
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap_or_default());
    texts.flat_map(|text| text.lines().filter_map(|line| tcp_inode(line, target)).collect::<Vec<_>>()).collect()
}

/// The inode of a line of `/proc/net/tcp` or `tcp6`, if it is of a listening socket in the way of `target`.
fn tcp_inode(line: &str, target: SocketAddr) -> Option<String> {
    let mut words = line.split_ascii_whitespace();
    let (local, state) = (words.nth(1)?, words.nth(1)?);
    let (ip, port) = local.split_once(':')?;
    let (ip, port) = (hex_address(ip)?, u16::from_str_radix(port, 16).ok()?);
    let is_same = ip == target.ip() || ip.is_unspecified() || target.ip().is_unspecified();
    // The uid, the timeout and then the inode: words 7 to 9, of which 0 to 3 are behind us.
    (state == TCP_LISTEN && port == target.port() && is_same).then(|| words.nth(5).map(str::to_owned)).flatten()
}

/// An address as the kernel prints it: words of 32 bits in the byte order of the machine.
fn hex_address(text: &str) -> Option<IpAddr> {
    let mut bytes = [0; 16];
    let words = text.len().checked_div(8).filter(|words| matches!(words, 1 | 4) && text.is_ascii())?;
    for at in 0..words {
        let word = u32::from_str_radix(&text[at * 8..at * 8 + 8], 16).ok()?;
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
    }
    Some(match words {
        1 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        _ => Ipv6Addr::from(bytes).into(),
    })
}

/// The sockets that are bound to a path.
fn unix_inodes(path: &Path) -> Vec<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let inode = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let inode = words.nth(6)?.to_owned();
        (Path::new(words.next()?) == path).then_some(inode)
    };
    text.lines().filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        os::{fd::AsFd as _, unix::net::UnixListener},
    };

    use super::*;
    use crate::handover::Channel;

    #[test]
    fn this_process_is_found_at_its_own_addresses_and_nobody_at_a_free_one() {
        let own = std::process::id();
        for bind in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(bind) else {
                assert!(bind.starts_with('['), "{bind} can be bound");
                continue;
            };
            let address = Address::Socket(listener.local_addr().expect("bound"));
            let found = Occupant::of(&address).expect("this process listens");
            assert!(found.pid == own && found.is_same_program(), "{bind}: {found}");
            assert!(in_use(&address).to_string().contains(&own.to_string()));
            drop(listener);
            assert!(Occupant::of(&address).is_none() && !is_listened_on(&address), "{bind}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        let _listener = UnixListener::bind(&path).expect("bound");
        assert_eq!(Occupant::of(&Address::Unix(path)).map(|found| found.pid), Some(own));
    }

    /// As of a process with more capabilities: the socket listens, and no process of `/proc` holds it.
    #[test]
    fn a_socket_whose_holder_is_hidden_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address::Socket(listener.local_addr().expect("bound"));
        let (channel, _other) = Channel::pair().expect("a pair");
        channel.send(b"x", &[listener.as_fd()]).expect("sent");
        drop(listener);
        assert!(Occupant::of(&address).is_none() && is_listened_on(&address));
        assert!(in_use(&address).to_string().starts_with("another process"));
    }

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0";
        let at = |text: &str| tcp_inode(line, text.parse().expect("an address"));
        assert_eq!(at("127.0.0.1:6379").as_deref(), Some("4711"));
        assert_eq!(at("0.0.0.0:6379").as_deref(), Some("4711"), "every address is in its way");
        assert_eq!((at("127.0.0.1:6380"), at("127.0.0.2:6379")), (None, None));
        let established = line.replace(" 0A ", " 01 ");
        assert_eq!(tcp_inode(&established, "127.0.0.1:6379".parse().expect("an address")), None);
        let words = "00000000000000000000000001000000";
        assert_eq!(hex_address(words), Some(Ipv6Addr::LOCALHOST.into()));
        assert_eq!((hex_address("0100007"), hex_address("é00000000")), (None, None));
    }
}
