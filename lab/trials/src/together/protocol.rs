//! The protocol between conductor and process: JSON, a line each, over standard input and output of the process. Both are
//! the same program, so the schema only guards against a file that was replaced meanwhile.
//!
//! | conductor | process | |
//! |---|---|---|
//! | `job` | | which part of which scenario against which target |
//! | | `connected` | all its connections stand; nothing was sent |
//! | `all_connected` | | so do those of the others: write the keys |
//! | | `ready` | its keys are written, its connections stand: it could begin this phase |
//! | `phase` | | all are ready; begin at this instant |
//! | | `second` | a second of the phase is over |
//! | | `step` | the phase is over: the record of the part |
//! | | `done`, `failed` | after the last phase; or instead of what was expected. Then it ends |
//!
//! `ready`, `phase`, `second` and `step` come for each phase. `ready` of the next phase may overtake `step` of the last one.

use std::io::{self, BufRead, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use weir_load::StepRecord;
use weir_load::run::Slice;

/// Value of the field `schema` of a job.
pub const SCHEMA: &str = "weir.lab.together/1";

/// Bytes of one line. Default 8 MiB: a record with five full histograms has about one.
pub const LINE_BYTES_MAX: u64 = 8 << 20;

/// From the conductor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// The first line.
    Job(Job),
    /// Write the keys.
    AllConnected,
    /// Begin a phase.
    Phase {
        /// Which, from 0.
        index: usize,
        /// When, in microseconds since 1970.
        begins_unix_us: u64,
    },
}

/// The task of a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Job {
    /// [`SCHEMA`].
    pub schema: String,
    /// Id of the run, as in its records.
    pub run_id: String,
    /// Such as `2/4`.
    pub part: String,
    /// `HOST:PORT` or `unix:/path`.
    pub target: String,
    /// Text of the scenario: that of the conductor, whatever became of the file.
    pub scenario: String,
    /// Thresholds of the command line, beside those of the scenario.
    pub thresholds: Vec<String>,
}

/// From a process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// All its connections stand.
    Connected,
    /// It could begin phase `index`.
    Ready {
        /// From 0.
        index: usize,
    },
    /// A second of a phase is over.
    Second {
        /// Index of the phase, from 0.
        phase: usize,
        /// Index of the second, from 1.
        index: u32,
        /// The requests that ended in it.
        slice: Box<Slice>,
    },
    /// A phase is over.
    Step(Box<StepRecord>),
    /// So is the last.
    Done,
    /// There will be no further record; a sentence for people.
    Failed(String),
}

/// Writes one line.
///
/// # Errors
/// The other side is gone.
pub fn write(out: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Reads one line; `None` at the end.
///
/// # Errors
/// It cannot be read, is longer than [`LINE_BYTES_MAX`], or says nothing that is known.
pub fn read<T: DeserializeOwned>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    if input.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_written_text_is_read_line_by_line_and_nothing_else() {
        let mut lines = Vec::new();
        let mut slice = Slice { completed: 3, ..Slice::default() };
        slice.sojourn.record_nanos(70_000);
        write(&mut lines, &Report::Ready { index: 1 }).expect("into memory");
        write(&mut lines, &Report::Second { phase: 1, index: 7, slice: Box::new(slice.clone()) }).expect("into memory");
        let text = String::from_utf8(lines.clone()).expect("JSON");
        assert!(text.starts_with("{\"ready\":{\"index\":1}}\n{\"second\":{\"phase\":1,\"index\":7,"), "{text}");
        let mut input = &lines[..];
        assert!(matches!(read(&mut input), Ok(Some(Report::Ready { index: 1 }))));
        assert!(matches!(read(&mut input), Ok(Some(Report::Second { slice: found, .. })) if *found == slice));
        assert!(matches!(read::<Report>(&mut input), Ok(None)));
        for wrong in ["{\"unknown\":1}\n", "\n", "{\"ready\":"] {
            assert!(read::<Report>(&mut wrong.as_bytes()).is_err(), "{wrong}");
        }
        let endless = vec![b' '; LINE_BYTES_MAX as usize + 1];
        assert!(read::<Report>(&mut &endless[..]).is_err());
    }
}
