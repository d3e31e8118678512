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
    /// Called in front of each step on the disk, which it may refuse.
    #[cfg(test)]
    pub steps: super::handover::tests::Steps,
}

/// Files that were found.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Generations of snapshots, rising.
    pub snapshots: Vec<u64>,
    /// Generations and workers of segments, rising.
    pub segments: Vec<(u64, u16)>,
    /// Generations and workers of segments of processes that hand over, rising.
    pub departing: Vec<(u64, u16)>,
}

/// Whose a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// That of the process that has the journal.
    Owned,
    /// That of a process that hands the journal over.
    Departing,
}

impl Listing {
    fn segments_of(&mut self, kind: Kind) -> &mut Vec<(u64, u16)> {
        match kind {
            Kind::Owned => &mut self.segments,
            Kind::Departing => &mut self.departing,
        }
    }
}

impl Kind {
    fn ending(self) -> &'static str {
        match self {
            Self::Owned => "journal",
            Self::Departing => "departing",
        }
    }
}

impl Files {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            #[cfg(test)]
            steps: Default::default(),
        }
    }

    #[cfg(test)]
    fn step(&self, name: &'static str) -> io::Result<()> {
        self.steps.call(name)
    }

    #[cfg(not(test))]
    fn step(&self, _: &'static str) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    fn segment_path(&self, kind: Kind, generation: u64, worker: u16) -> PathBuf {
        self.directory.join(format!("{generation:016x}-{worker:04x}.{}", kind.ending()))
    }

    /// The reservations that were open when a process handed over. That process has a lock on it while it lives.
    fn opening_path(&self, generation: u64) -> PathBuf {
        self.directory.join(format!("{generation:016x}.opening"))
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
            } else if let Some((stem, ending)) = name.rsplit_once('.')
                && let Some((generation, worker)) = stem.split_once('-')
                && let (Some(generation), Ok(worker)) = (number(generation), u16::from_str_radix(worker, 16))
            {
                for kind in [Kind::Owned, Kind::Departing].into_iter().filter(|kind| ending == kind.ending()) {
                    listing.segments_of(kind).push((generation, worker));
                }
            }
        }
        listing.snapshots.sort_unstable();
        listing.segments.sort_unstable();
        listing.departing.sort_unstable();
        Ok(listing)
    }

    pub(super) fn read_segment(&self, kind: Kind, generation: u64, worker: u16) -> io::Result<Vec<u8>> {
        fs::read(self.segment_path(kind, generation, worker))
    }

    /// A segment that another process appends to.
    pub(super) fn open_segment(&self, kind: Kind, generation: u64, worker: u16) -> io::Result<File> {
        File::open(self.segment_path(kind, generation, worker))
    }

    /// The file behind which a process that has handed over lives: see [`Self::write_opening`].
    pub(super) fn open_opening(&self, generation: u64) -> io::Result<File> {
        File::open(self.opening_path(generation))
    }

    pub(super) fn read_snapshot(&self, generation: u64) -> io::Result<Vec<u8>> {
        fs::read(self.snapshot_path(generation))
    }

    /// A new segment with its first bytes, to be appended to. It and its name are on the disk when this returns.
    pub(super) fn create_segment(&self, kind: Kind, generation: u64, worker: u16, head: &[u8]) -> io::Result<File> {
        self.step("create a segment")?;
        let path = self.segment_path(kind, generation, worker);
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
        self.step("begin a snapshot")?;
        self.write_whole("snapshot.new", &self.snapshot_path(generation), bytes).map(drop)
    }

    /// The snapshot of `generation` has its name.
    pub(super) fn has_snapshot(&self, generation: u64) -> bool {
        self.snapshot_path(generation).exists()
    }

    /// Writes the reservations that are open when a process hands over, in the same way. The file is locked until it is closed,
    /// which the kernel does when the process ends.
    pub(super) fn write_opening(&self, generation: u64, bytes: &[u8]) -> io::Result<File> {
        self.step("begin an opening")?;
        self.write_whole("opening.new", &self.opening_path(generation), bytes)
    }

    /// The file, which is locked before it has its name.
    fn write_whole(&self, beside: &str, place: &Path, bytes: &[u8]) -> io::Result<File> {
        let beside = self.directory.join(beside);
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(MODE).open(&beside)?;
        file.lock()?;
        file.write_all(bytes)?;
        file.sync_data()?;
        self.step("name a file")?;
        fs::rename(&beside, place)?;
        self.step("synchronise a name")?;
        self.sync_names()?;
        Ok(file)
    }

    /// Removes what the snapshot of `generation` holds already. It does not hold files of departing processes in `kept`. Files that
    /// stay are ignored by the next recovery.
    pub(super) fn remove_before(&self, generation: u64, kept: impl Fn(u64) -> bool) {
        let Ok(listing) = self.list() else { return };
        for (old, worker) in listing.segments.into_iter().filter(|(old, _)| *old < generation) {
            let _ = fs::remove_file(self.segment_path(Kind::Owned, old, worker));
        }
        for (old, worker) in listing.departing.into_iter().filter(|(old, _)| *old <= generation && !kept(*old)) {
            // The listing finds segments: the last of them goes last.
            let _ = fs::remove_file(self.opening_path(old));
            let _ = fs::remove_file(self.segment_path(Kind::Departing, old, worker));
        }
        for old in listing.snapshots.into_iter().filter(|old| *old < generation) {
            let _ = fs::remove_file(self.snapshot_path(old));
        }
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }
}
