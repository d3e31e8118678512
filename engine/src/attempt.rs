//! Whether a start would get an address or a log, found out without a trace: nothing is created, replaced or removed, also beside a
//! gateway that uses them.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::fs::{Access, OFlags, access};
use socket2::SockAddr;

use crate::{net, settings::Address};

/// Finds out whether [`net::bind`] would succeed, and whether the address is free if it is not to be shared.
///
/// # Errors
/// As `bind(2)`; `AddrInUse` if a process listens there. For a Unix path: its directory is missing, or this user may not write to it.
pub fn bind(address: &Address, reuse_port: bool) -> io::Result<()> {
    match address {
        Address::Unix(path) => bind_path(path),
        other if !reuse_port && !net::is_free(other)? => Err(io::ErrorKind::AddrInUse.into()),
        other => net::bind(other).map(drop),
    }
}

/// A start replaces a socket file on which no process listens, and no other file.
fn bind_path(path: &Path) -> io::Result<()> {
    SockAddr::unix(path)?;
    match fs::symlink_metadata(path) {
        Ok(_) if !net::is_unused_socket(path)? => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create_in(path),
    }
}

/// Finds out whether a file can be opened to append to it, or created.
///
/// # Errors
/// As `open(2)`.
pub fn append(path: &Path) -> io::Result<()> {
    // A pipe without a reader is an error then, where the call would wait for one.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    match OpenOptions::new().append(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_in(path),
        opened => opened.map(drop),
    }
}

/// Finds out whether this user may create files beside `path`.
fn create_in(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(access(directory, Access::EXISTS | Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_log_is_neither_created_nor_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (missing, kept) = (folder.path().join("access.log"), folder.path().join("kept.log"));
        fs::write(&kept, "a line\n").expect("written");
        // A file that is created and removed again leaves the folder with another time.
        let changed = || fs::metadata(folder.path()).and_then(|metadata| metadata.modified()).expect("a time");
        let before = changed();
        append(&missing).expect("it can be created");
        append(&kept).expect("it can be appended to");
        assert!(!missing.exists() && fs::read(&kept).expect("the file") == b"a line\n" && changed() == before);
        let nowhere = append(&folder.path().join("none/access.log")).expect_err("no directory");
        assert_eq!(nowhere.kind(), io::ErrorKind::NotFound);
        assert!(append(folder.path()).is_err(), "a directory is no log");
    }

    #[test]
    fn a_socket_file_stays_whether_a_process_listens_on_it_or_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        let address = Address::Unix(path.clone());
        bind(&address, false).expect("nothing is there");
        assert!(!path.exists());
        let listener = UnixListener::bind(&path).expect("bound");
        assert_eq!(bind(&address, false).expect_err("a process listens").kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        bind(&address, false).expect("a start would replace it");
        assert!(path.exists());
        fs::remove_file(&path).and_then(|()| fs::write(&path, "a file")).expect("written");
        assert_eq!(bind(&address, false).expect_err("no socket").kind(), io::ErrorKind::AddrInUse);
        let nowhere = Address::Unix(folder.path().join("none/s.sock"));
        assert_eq!(bind(&nowhere, false).expect_err("no directory").kind(), io::ErrorKind::NotFound);
    }
}
