//! The access log: what a line looks like, and the file that it goes to.

use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use weir_base::time::Time;
use weir_config::{AccessLogFormat, AccessLogSettings, LogTarget};
use weir_telemetry::log::{AccessField, AccessRecord, HttpAccess};

/// How often it is looked whether somebody has moved the file away.
const LOOK: Duration = Duration::from_secs(1);

/// Where lines go, and in which form.
pub struct AccessLog {
    settings: AccessLogSettings,
    target: Option<Target>,
    /// Kept for its memory.
    line: Vec<u8>,
}

enum Target {
    Stream(Box<dyn Write>),
    File(LogFile),
}

impl AccessLog {
    /// Opens the target. A file that cannot be opened is told of, and the log is off.
    pub fn new(settings: AccessLogSettings) -> Self {
        let target = match &settings.target {
            LogTarget::Off => None,
            LogTarget::Stdout => Some(Target::Stream(Box::new(io::stdout()))),
            LogTarget::Stderr => Some(Target::Stream(Box::new(io::stderr()))),
            LogTarget::File(path) => match LogFile::open(path, &settings) {
                Ok(file) => Some(Target::File(file)),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "cannot open the access log; it is off");
                    None
                }
            },
        };
        Self { settings, target, line: Vec::new() }
    }

    /// Writes a line. A log that cannot be written must not stop the others.
    pub fn write(&mut self, record: &AccessRecord) {
        let Some(target) = &mut self.target else { return };
        self.line.clear();
        line(record, &self.settings, &mut self.line);
        self.line.push(b'\n');
        let _ = match target {
            Target::Stream(stream) => stream.write_all(&self.line),
            Target::File(file) => file.write(&self.line),
        };
    }

    /// Lets readers see what was written.
    pub fn flush(&mut self) {
        let _ = match &mut self.target {
            None => Ok(()),
            Some(Target::Stream(stream)) => stream.flush(),
            Some(Target::File(file)) => file.flush(),
        };
    }
}

/// A file that is put aside when it is large, and begun anew when somebody else has done so.
struct LogFile {
    path: PathBuf,
    file: BufWriter<File>,
    /// Which file it is.
    inode: u64,
    bytes: u64,
    bytes_max: u64,
    keep: u32,
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
            looked: Instant::now(),
            rotated_in_vain: None,
        })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        let is_full = self.bytes > 0 && self.bytes + length > self.bytes_max;
        if is_full && self.rotated_in_vain.is_none_or(|at| at.elapsed() >= LOOK) {
            self.rotate();
        }
        self.bytes += length;
        self.file.write_all(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()?;
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            if fs::metadata(&self.path).map(|found| found.ino()).ok() != Some(self.inode) {
                self.begin();
            }
        }
        Ok(())
    }

    /// The file becomes the first of those that are kept, and a new one begins.
    fn rotate(&mut self) {
        let numbered = |number: u32| PathBuf::from(format!("{}.{number}", self.path.display()));
        // What cannot be moved is lost to the next one; the log goes on either way.
        for number in (1..self.keep).rev() {
            let _ = fs::rename(numbered(number), numbered(number + 1));
        }
        if let Err(error) = self.file.flush().and_then(|()| fs::rename(&self.path, numbered(1))) {
            if self.rotated_in_vain.is_none() {
                tracing::error!(path = %self.path.display(), %error, "cannot put the access log aside; it grows on");
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
                self.rotated_in_vain = None;
            }
            Err(error) => {
                tracing::error!(path = %self.path.display(), %error, "cannot begin the access log anew; the old file goes on");
            }
        }
    }
}

/// The file, which one it is, and its length.
fn append(path: &Path) -> io::Result<(BufWriter<File>, u64, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let metadata = file.metadata()?;
    Ok((BufWriter::new(file), metadata.ino(), metadata.len()))
}

fn line(record: &AccessRecord, settings: &AccessLogSettings, into: &mut Vec<u8>) {
    let age = Time::now().since(record.at);
    let at = SystemTime::now().checked_sub(age).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let at = at.unwrap_or_default().as_secs_f64();
    match (&settings.fields, settings.format) {
        (None, AccessLogFormat::Text) => into.extend_from_slice(text(record, at).as_bytes()),
        (None, AccessLogFormat::Json) => json(record, at, AccessField::NAMED.into_iter(), into),
        (Some(fields), AccessLogFormat::Json) => {
            let name = |field: &AccessField| AccessField::NAMED.into_iter().find(|(_, known)| known == field);
            json(record, at, fields.iter().filter_map(name), into);
        }
        (Some(fields), AccessLogFormat::Text) => {
            for (number, field) in fields.iter().enumerate() {
                if number > 0 {
                    into.push(b' ');
                }
                word(value(*field, record, at), into);
            }
        }
    }
}

/// What a field says.
enum Value<'r> {
    Text(Cow<'r, str>),
    Number(u64),
    /// Of Unix time, to the millisecond.
    Seconds(f64),
}

/// What a field says; `None`: nothing is known.
fn value(field: AccessField, record: &AccessRecord, at: f64) -> Option<Value<'_>> {
    let http = record.http.as_deref();
    let own = |text| Some(Value::Text(Cow::Borrowed(text)));
    let number = |number| Some(Value::Number(number));
    match field {
        AccessField::Time => Some(Value::Seconds(at)),
        AccessField::Listener => own(&*record.listener),
        AccessField::Peer => Some(Value::Text(record.peer.to_string().into())),
        AccessField::Connection => number(record.connection),
        AccessField::Command => own(record.command),
        AccessField::Upstream => own(record.upstream.as_deref().unwrap_or("-")),
        AccessField::DurationUs => number(record.duration_nanos / 1_000),
        AccessField::UpstreamUs => number(record.upstream_nanos / 1_000),
        AccessField::RequestBytes => number(record.request_bytes),
        AccessField::ReplyBytes => number(record.reply_bytes),
        AccessField::Outcome => own(record.outcome),
        AccessField::Status => number(http?.status.into()),
        AccessField::Protocol => own(http?.protocol),
        AccessField::Method => own(&*http?.method),
        AccessField::Path => own(&*http?.path),
        AccessField::Authority => own(&*http?.authority),
        AccessField::Route => own(http?.route.as_deref()?),
        AccessField::Endpoint => own(http?.endpoint.as_deref()?),
        AccessField::User => own(http?.user.as_deref()?),
        AccessField::UserAgent => own(http?.user_agent.as_deref()?),
        AccessField::ForwardedFor => own(http?.forwarded_for.as_deref()?),
        AccessField::RequestId => own(http?.request_id.as_deref()?),
        AccessField::TraceId => own(http?.trace_id.as_deref()?),
    }
}

/// Pairs; what is not known is left out.
fn json(record: &AccessRecord, at: f64, fields: impl Iterator<Item = (&'static str, AccessField)>, into: &mut Vec<u8>) {
    into.push(b'{');
    let mut is_first = true;
    for (name, field) in fields {
        let Some(value) = value(field, record, at) else { continue };
        into.extend_from_slice(if is_first { b"\"" } else { b",\"" });
        is_first = false;
        into.extend_from_slice(name.as_bytes());
        into.extend_from_slice(b"\":");
        // Writing to memory does not fail.
        let _ = match value {
            Value::Text(text) => serde_json::to_writer(&mut *into, &text).map_err(io::Error::other),
            Value::Number(number) => write!(into, "{number}"),
            Value::Seconds(seconds) => write!(into, "{seconds:.6}"),
        };
    }
    into.push(b'}');
}

/// One of chosen fields as text. What is not known is `-`; what has a blank in it is quoted.
fn word(value: Option<Value<'_>>, into: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = match value {
        None => write!(into, "-"),
        Some(Value::Text(text)) if text.is_empty() || text.contains([' ', '"']) => write!(into, "{}", quoted(&text)),
        Some(Value::Text(text)) => write!(into, "{text}"),
        Some(Value::Number(number)) => write!(into, "{number}"),
        Some(Value::Seconds(seconds)) => write!(into, "{seconds:.3}"),
    };
}

/// A quote of the client's ends nothing.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "'"))
}

/// A line with everything.
fn text(record: &AccessRecord, at: f64) -> String {
    let upstream = record.upstream.as_deref().unwrap_or("-");
    let (took, upstream_took) = (record.duration_nanos / 1_000, record.upstream_nanos / 1_000);
    format!(
        "{at:.3} {} {} {} {} {upstream} {took}us {upstream_took}us {}B {}B {}{}",
        record.listener,
        record.peer,
        record.connection,
        record.command,
        record.request_bytes,
        record.reply_bytes,
        record.outcome,
        record.http.as_deref().map(http_text).unwrap_or_default()
    )
}

/// What a line of text says of an HTTP request: status, "method path protocol", authority, route, endpoint, "user",
/// "user agent", "X-Forwarded-For", "request id", trace id.
fn http_text(http: &HttpAccess) -> String {
    let or_dash = |text: &Option<Box<str>>| text.as_deref().unwrap_or("-").to_owned();
    format!(
        " {} {} {} {} {} {} {} {} {} {}",
        http.status,
        quoted(&format!("{} {} {}", http.method, http.path, http.protocol)),
        http.authority,
        or_dash(&http.route),
        or_dash(&http.endpoint),
        quoted(&or_dash(&http.user)),
        quoted(&or_dash(&http.user_agent)),
        quoted(&or_dash(&http.forwarded_for)),
        quoted(&or_dash(&http.request_id)),
        or_dash(&http.trace_id)
    )
}
