//! The file of the usage log.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Bytes of a file before it is put aside. Default 64 MiB.
pub const ROTATE_BYTES: u64 = 64 << 20;

/// Files that are kept beside the present one. Default 16: 1 GiB, some two million requests.
pub const ROTATE_KEEP: u32 = 16;

/// How often the file is checked for having been moved away.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Where the usage log is, and when it is put aside. The same as of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageSettings {
    /// The file. Older ones are `<path>.1`, `.2`, ...
    pub path: PathBuf,
    /// See [`ROTATE_BYTES`]. `None`: another program rotates.
    pub rotate_bytes: Option<u64>,
    /// See [`ROTATE_KEEP`].
    pub rotate_keep: u32,
}

impl UsageSettings {
    /// The defaults, with this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), rotate_bytes: Some(ROTATE_BYTES), rotate_keep: ROTATE_KEEP }
    }
}

/// The open file. One thread has it.
#[derive(Debug)]
pub struct UsageFile {
    settings: UsageSettings,
    file: File,
    inode: u64,
    /// Bytes of whole lines.
    length: u64,
    /// There may be a part of a line behind them.
    is_torn: bool,
    looked: Instant,
}

impl UsageFile {
    /// Opens the file. A part of a line at its end, left by a process that died, is cut off: a recovery writes the line again.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn open(settings: UsageSettings) -> io::Result<Self> {
        let file = open(&settings.path)?;
        let metadata = file.metadata()?;
        let length = whole_lines(&settings.path, metadata.len())?;
        if length < metadata.len() {
            file.set_len(length)?;
        }
        Ok(Self { settings, file, inode: metadata.ino(), length, is_torn: false, looked: Instant::now() })
    }

    /// Appends whole lines.
    ///
    /// # Errors
    /// How many bytes, in whole lines, were written before the error.
    pub fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        self.look();
        let mut written = 0;
        while written < lines.len() {
            let next = self.fitting(&lines[written..]);
            if next == 0 {
                self.rotate().map_err(|error| (written, error))?;
                continue;
            }
            self.append(&lines[written..written + next]).map_err(|error| (written, error))?;
            written += next;
        }
        Ok(())
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        match self.file.write_all(lines) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.is_torn = self.file.set_len(self.length).is_err();
                Err(error)
            }
        }
    }

    /// Bytes of whole lines that the file takes before it is put aside; the first line, if it is empty.
    fn fitting(&self, lines: &[u8]) -> usize {
        let limit = self.settings.rotate_bytes.unwrap_or(u64::MAX);
        let room = usize::try_from(limit.saturating_sub(self.length)).unwrap_or(usize::MAX);
        if lines.len() <= room {
            return lines.len();
        }
        match lines[..room].iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if self.length > 0 => 0,
            None => lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1),
        }
    }

    /// The file becomes the first of those that are kept, and a new one begins.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        // Up to the first number that is free. A process that dies in the middle leaves such a gap, and no file is lost.
        let keep = self.settings.rotate_keep.max(1);
        let free = (1..keep).find(|number| !self.numbered(*number).exists()).unwrap_or(keep);
        for number in (1..free).rev() {
            fs::rename(self.numbered(number), self.numbered(number + 1))?;
        }
        fs::rename(&self.settings.path, self.numbered(1))?;
        self.begin()
    }

    fn numbered(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("{}.{number}", self.settings.path.display()))
    }

    fn begin(&mut self) -> io::Result<()> {
        let file = open(&self.settings.path)?;
        let metadata = file.metadata()?;
        (self.file, self.inode, self.length, self.is_torn) = (file, metadata.ino(), metadata.len(), false);
        Ok(())
    }

    /// Begins a file again that another program has moved away.
    pub fn look(&mut self) {
        if self.looked.elapsed() < LOOK_INTERVAL {
            return;
        }
        self.looked = Instant::now();
        if fs::metadata(&self.settings.path).map(|found| found.ino()).ok() != Some(self.inode)
            && let Err(error) = self.begin()
        {
            tracing::error!(path = %self.settings.path.display(), %error, "the usage log cannot begin again; the old file goes on");
        }
    }

    /// Waits until all lines are on the disk.
    ///
    /// # Errors
    /// The disk reports one.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Appends those of `lines` that neither the file nor one that was put aside has: how many. Two requests never have the same
    /// line, since each has an identity of its own.
    ///
    /// # Errors
    /// A file cannot be read, or the lines cannot be written and synchronised.
    pub fn restore(&mut self, lines: Vec<Box<[u8]>>) -> io::Result<usize> {
        let mut missing: HashMap<Box<[u8]>, usize> = HashMap::with_capacity(lines.len());
        for (index, line) in lines.into_iter().enumerate() {
            missing.insert(line, index);
        }
        let aside = (1..=self.settings.rotate_keep).map(|number| self.numbered(number));
        for path in [self.settings.path.clone()].into_iter().chain(aside) {
            if missing.is_empty() {
                break;
            }
            strike_out(&path, &mut missing)?;
        }
        if missing.is_empty() {
            return Ok(0);
        }
        let mut missing: Vec<_> = missing.into_iter().collect();
        missing.sort_unstable_by_key(|(_, index)| *index);
        for (line, _) in &missing {
            self.write(line).map_err(|(_, error)| error)?;
        }
        self.sync()?;
        Ok(missing.len())
    }
}

/// Removes the lines of a file from `missing`.
fn strike_out(path: &Path, missing: &mut HashMap<Box<[u8]>, usize>) -> io::Result<()> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let (mut reader, mut line) = (BufReader::new(file), Vec::new());
    while reader.read_until(b'\n', &mut line)? > 0 {
        missing.remove(&*line);
        line.clear();
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Bytes up to the end of the last whole line. The last part of the file is enough: a line has a bound.
fn whole_lines(path: &Path, length: u64) -> io::Result<u64> {
    use std::io::{Read as _, Seek as _};
    let begin = length.saturating_sub(super::record::LINE_BYTES_MAX as u64 * 2);
    let mut file = File::open(path)?;
    file.seek(io::SeekFrom::Start(begin))?;
    let mut end = Vec::new();
    file.take(length - begin).read_to_end(&mut end)?;
    let whole = end.iter().rposition(|byte| *byte == b'\n').map(|at| begin + at as u64 + 1);
    // A long text without a line end is no usage log of ours: leave it as it is.
    Ok(whole.unwrap_or(if begin == 0 { 0 } else { length }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: usize) -> Vec<u8> {
        format!("{{\"request\":\"{number:04}\"}}\n").into_bytes()
    }

    fn all(folder: &Path) -> Vec<String> {
        let mut lines: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .flat_map(|entry| {
                fs::read_to_string(entry.unwrap().path()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn a_full_file_is_put_aside_and_no_line_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let settings =
            UsageSettings { rotate_bytes: Some(70), rotate_keep: 100, path: folder.path().join("usage.log") };
        let mut file = UsageFile::open(settings.clone()).unwrap();
        for number in 0..20 {
            file.write(&[line(2 * number), line(2 * number + 1)].concat()).unwrap();
        }
        let expected: Vec<String> =
            (0..40).map(|number| String::from_utf8(line(number)).unwrap().trim_end().to_owned()).collect();
        assert_eq!(all(folder.path()), expected);
        assert!(fs::metadata(&settings.path).unwrap().len() <= 70);
        assert!(folder.path().join("usage.log.3").exists());
    }

    #[test]
    fn a_recovery_appends_the_lines_that_are_in_none_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let settings =
            UsageSettings { rotate_bytes: Some(70), rotate_keep: 100, path: folder.path().join("usage.log") };
        let mut file = UsageFile::open(settings.clone()).unwrap();
        (0..10).for_each(|number| file.write(&line(number)).unwrap());
        drop(file);
        // The process died within a line.
        OpenOptions::new().append(true).open(&settings.path).unwrap().write_all(&line(10)[..9]).unwrap();
        let mut file = UsageFile::open(settings).unwrap();
        let lines = || (5..13).map(|number| line(number).into()).collect();
        assert_eq!(file.restore(lines()).unwrap(), 3);
        assert_eq!(file.restore(lines()).unwrap(), 0, "they are there now");
        assert_eq!(all(folder.path()).len(), 13);
    }

    #[test]
    fn a_file_that_was_moved_away_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("usage.log");
        let mut file = UsageFile::open(UsageSettings::new(&path)).unwrap();
        file.write(&line(1)).unwrap();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        file.looked = Instant::now() - LOOK_INTERVAL;
        file.write(&line(2)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), line(2));
    }
}
