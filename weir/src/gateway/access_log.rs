//! Where lines of the access log go.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use weir_config::{AccessLogSettings, LogTarget};

/// How often it is looked whether somebody has moved the file away.
const LOOK: Duration = Duration::from_secs(1);

/// Where lines go.
pub enum AccessLog {
    /// Nowhere.
    Off,
    /// To a stream of the process.
    Stream(Box<dyn Write + Send>),
    /// To a file.
    File(LogFile),
}

impl AccessLog {
    /// Opens the target.
    ///
    /// # Errors
    /// The file cannot be opened. A gateway must not serve without its configured log.
    pub fn open(settings: &AccessLogSettings) -> io::Result<Self> {
        Ok(match &settings.target {
            LogTarget::Off => Self::Off,
            LogTarget::Stdout => Self::Stream(Box::new(io::stdout())),
            LogTarget::Stderr => Self::Stream(Box::new(io::stderr())),
            LogTarget::File(path) => Self::File(LogFile::open(path, settings).map_err(|error| {
                let directory = path.parent().unwrap_or(Path::new("/")).display();
                let help =
                    format!("create {directory} and let this user write to it, or change telemetry.access_log.target");
                io::Error::new(error.kind(), format!("cannot open the access log {}: {error}; {help}", path.display()))
            })?),
        })
    }

    /// Writes whole lines; how many of them were lost. A log that cannot be written must not stop the others.
    pub fn write(&mut self, lines: &[u8]) -> u64 {
        match self {
            Self::Off => 0,
            Self::Stream(stream) => {
                stream.write_all(lines).and_then(|()| stream.flush()).map_or_else(|_| count(lines), |()| 0)
            }
            Self::File(file) => file.write(lines),
        }
    }

    /// Begins a file again that somebody has moved away.
    pub fn look(&mut self) {
        if let Self::File(file) = self {
            file.look();
        }
    }
}

fn count(lines: &[u8]) -> u64 {
    lines.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// A file that is put aside when it is large, and begun again when somebody else has done so.
pub struct LogFile {
    path: PathBuf,
    file: File,
    /// Which file it is.
    inode: u64,
    bytes: u64,
    bytes_max: u64,
    keep: u32,
    /// It ends in a part of a line.
    is_torn: bool,
    looked: Instant,
    /// When the file could not be put aside.
    rotated_in_vain: Option<Instant>,
}

impl LogFile {
    fn open(path: &Path, settings: &AccessLogSettings) -> io::Result<Self> {
        let (file, inode, bytes) = append(path)?;
        let (bytes_max, keep) = (settings.rotate_bytes.unwrap_or(u64::MAX), settings.rotate_keep);
        Ok(Self {
            path: path.to_owned(),
            file,
            inode,
            bytes,
            bytes_max,
            keep,
            is_torn: false,
            looked: Instant::now(),
            rotated_in_vain: None,
        })
    }

    /// How many lines were lost.
    fn write(&mut self, mut lines: &[u8]) -> u64 {
        while !lines.is_empty() {
            let fitting = self.fitting(lines);
            if fitting == 0 {
                self.rotate();
                continue;
            }
            let (now, later) = lines.split_at(fitting);
            if self.append(now).is_err() {
                return count(lines);
            }
            lines = later;
        }
        0
    }

    /// Appends whole lines. After an error only the file shows how many bytes were written.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let end: &[u8] = if self.is_torn { b"\n" } else { b"" };
        let written = self.file.write_all(end).and_then(|()| self.file.write_all(lines));
        match &written {
            Ok(()) => {
                self.bytes += (end.len() + lines.len()) as u64;
                self.is_torn = false;
            }
            Err(_) => {
                let length = self.file.metadata().map_or(self.bytes, |metadata| metadata.len());
                self.is_torn |= length != self.bytes;
                self.bytes = length;
            }
        }
        written
    }

    /// Bytes of whole lines that the file may still have. All, if it cannot be put aside; the first line, if it is empty.
    fn fitting(&self, lines: &[u8]) -> usize {
        let room = usize::try_from(self.bytes_max.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        if lines.len() <= room || self.rotated_in_vain.is_some_and(|at| at.elapsed() < LOOK) {
            return lines.len();
        }
        let end = |line: Option<usize>| line.map(|at| at + 1);
        match end(lines[..room].iter().rposition(|byte| *byte == b'\n')) {
            Some(fitting) => fitting,
            None if self.bytes > 0 => 0,
            None => end(lines.iter().position(|byte| *byte == b'\n')).unwrap_or(lines.len()),
        }
    }

    fn look(&mut self) {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if fs::metadata(&self.path).map(|found| found.ino()).ok() != Some(self.inode) {
                self.begin();
            }
        }
    }

    /// The file becomes the first of those that are kept, and a new one begins.
    fn rotate(&mut self) {
        if fs::metadata(&self.path).map(|found| found.ino()).ok() != Some(self.inode) {
            // Somebody else has moved it: there is nothing to put aside.
            return self.begin();
        }
        let numbered = |number: u32| PathBuf::from(format!("{}.{number}", self.path.display()));
        // A file that cannot be renamed is overwritten by the next one; the log goes on either way.
        for number in (1..self.keep).rev() {
            let _ = fs::rename(numbered(number), numbered(number + 1));
        }
        if let Err(error) = fs::rename(&self.path, numbered(1)) {
            if self.rotated_in_vain.is_none() {
                tracing::error!(path = %self.path.display(), %error, "cannot rotate the access log; it keeps growing");
            }
            self.rotated_in_vain = Some(Instant::now());
            return;
        }
        self.begin();
    }

    fn begin(&mut self) {
        match append(&self.path) {
            Ok((file, inode, bytes)) => {
                (self.file, self.inode, self.bytes) = (file, inode, bytes);
                (self.is_torn, self.rotated_in_vain) = (false, None);
            }
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "cannot open a new access log; the old file stays in use");
                self.rotated_in_vain = Some(Instant::now());
            }
        }
    }
}

/// The file, which one it is, and its length.
fn append(path: &Path) -> io::Result<(File, u64, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let metadata = file.metadata()?;
    let (inode, bytes) = (metadata.ino(), metadata.len());
    Ok((file, inode, bytes))
}
