//! Files of a journal: names, and operations that must reach the disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Files are for their owner alone: usage records name the users of models.
const MODE: u32 = 0o600;

/// Attempts to lock a directory: a process that has just ended, or a child of it that has not begun its program, may have the
/// lock for a moment.
const LOCK_TRIES: u32 = 50;

/// The pause between these: one second in all.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// A directory with its files.
#[derive(Clone, Debug)]
pub(super) struct Files {
    directory: PathBuf,
}

/// Files that were found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Generations of snapshots, rising.
    pub snapshots: Vec<u64>,
    /// Generations and workers of segments, rising.
    pub segments: Vec<(u64, u16)>,
}

impl Files {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn segment_path(&self, generation: u64, worker: u16) -> PathBuf {
        self.directory.join(format!("{generation:016x}-{worker:04x}.journal"))
    }

    fn snapshot_path(&self, generation: u64) -> PathBuf {
        self.directory.join(format!("{generation:016x}.snapshot"))
    }

    /// Locks the directory for this process, until the file is closed.
    pub(super) fn lock(&self) -> io::Result<File> {
        fs::create_dir_all(&self.directory)?;
        let file =
            OpenOptions::new().create(true).truncate(false).write(true).mode(MODE).open(self.directory.join("lock"))?;
        for _ in 0..LOCK_TRIES {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::Error(error)) => return Err(error),
                Err(fs::TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            }
        }
        let directory = self.directory.display();
        let text = format!("another process has the journal in {directory}; give each gateway a directory of its own");
        Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
    }

    pub(super) fn list(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let Some(name) = name.to_str() else { continue };
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            if let Some(generation) = name.strip_suffix(".snapshot").and_then(number) {
                listing.snapshots.push(generation);
            } else if let Some((generation, worker)) = name.strip_suffix(".journal").and_then(|it| it.split_once('-'))
                && let (Some(generation), Ok(worker)) = (number(generation), u16::from_str_radix(worker, 16))
            {
                listing.segments.push((generation, worker));
            }
        }
        listing.snapshots.sort_unstable();
        listing.segments.sort_unstable();
        Ok(listing)
    }

    pub(super) fn read_segment(&self, generation: u64, worker: u16) -> io::Result<Vec<u8>> {
        fs::read(self.segment_path(generation, worker))
    }

    pub(super) fn read_snapshot(&self, generation: u64) -> io::Result<Vec<u8>> {
        fs::read(self.snapshot_path(generation))
    }

    /// A new segment with its first bytes, to be appended to. It and its name are on the disk when this returns.
    pub(super) fn create_segment(&self, generation: u64, worker: u16, head: &[u8]) -> io::Result<File> {
        let path = self.segment_path(generation, worker);
        // A file of this name is left from a creation that failed before any record was written.
        let options = OpenOptions::new().create(true).truncate(true).write(true).mode(MODE).open(&path);
        options?.write_all(head)?;
        let file = OpenOptions::new().append(true).read(true).open(&path)?;
        file.sync_data()?;
        self.sync_names()?;
        Ok(file)
    }

    /// Writes a snapshot beside its place and moves it there: it is whole, or not there.
    pub(super) fn write_snapshot(&self, generation: u64, bytes: &[u8]) -> io::Result<()> {
        let beside = self.directory.join("snapshot.new");
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(MODE).open(&beside)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&beside, self.snapshot_path(generation))?;
        self.sync_names()
    }

    /// Removes what the snapshot of `generation` holds already. Files that stay are ignored by the next recovery.
    pub(super) fn remove_before(&self, generation: u64) {
        let Ok(listing) = self.list() else { return };
        for (old, worker) in listing.segments.into_iter().filter(|(old, _)| *old < generation) {
            let _ = fs::remove_file(self.segment_path(old, worker));
        }
        for old in listing.snapshots.into_iter().filter(|old| *old < generation) {
            let _ = fs::remove_file(self.snapshot_path(old));
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}
