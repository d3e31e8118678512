//! The access log: what a line looks like, and the file that it goes to.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use serde_json::Value as Json;
use weir_base::time::Time;
use weir_config::{AccessLogFormat, AccessLogSettings, LogTarget};
use weir_telemetry::log::{AccessField, AccessRecord, HttpAccess};

/// How often it is looked whether somebody has moved the file away.
const LOOK: Duration = Duration::from_secs(1);

/// Where lines go, and in which form.
pub struct AccessLog {
    settings: AccessLogSettings,
    target: Option<Target>,
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
        Self { settings, target }
    }

    /// Writes a line. A log that cannot be written must not stop the others.
    pub fn write(&mut self, record: &AccessRecord) {
        let Some(target) = &mut self.target else { return };
        let line = line(record, &self.settings);
        let _ = match target {
            Target::Stream(stream) => writeln!(stream, "{line}"),
            Target::File(file) => file.write(&line),
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
}

impl LogFile {
    fn open(path: &Path, settings: &AccessLogSettings) -> io::Result<Self> {
        let (file, inode, bytes) = append(path)?;
        let (bytes_max, keep) = (settings.rotate_bytes.unwrap_or(u64::MAX), settings.rotate_keep);
        Ok(Self { path: path.to_owned(), file, inode, bytes, bytes_max, keep, looked: Instant::now() })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let length = line.len() as u64 + 1;
        if self.bytes > 0 && self.bytes + length > self.bytes_max {
            self.rotate();
        }
        self.bytes += length;
        writeln!(self.file, "{line}")
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
            tracing::error!(path = %self.path.display(), %error, "cannot put the access log aside; it grows on");
            self.bytes_max = u64::MAX;
            return;
        }
        self.begin();
    }

    fn begin(&mut self) {
        match append(&self.path) {
            Ok((file, inode, bytes)) => (self.file, self.inode, self.bytes) = (file, inode, bytes),
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

fn line(record: &AccessRecord, settings: &AccessLogSettings) -> String {
    let age = Time::now().since(record.at);
    let at = SystemTime::now().checked_sub(age).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let at = at.unwrap_or_default().as_secs_f64();
    match (&settings.fields, settings.format) {
        (None, AccessLogFormat::Text) => text(record, at),
        (None, AccessLogFormat::Json) => json(record, at, AccessField::NAMED.into_iter()),
        (Some(fields), AccessLogFormat::Json) => {
            let name = |field: &AccessField| AccessField::NAMED.into_iter().find(|(_, known)| known == field);
            json(record, at, fields.iter().filter_map(name))
        }
        (Some(fields), AccessLogFormat::Text) => {
            let words: Vec<String> = fields.iter().map(|field| word(value(*field, record, at))).collect();
            words.join(" ")
        }
    }
}

/// What a field says; `None`: nothing is known.
fn value(field: AccessField, record: &AccessRecord, at: f64) -> Option<Json> {
    let http = record.http.as_deref();
    let text = |of: fn(&HttpAccess) -> Option<&str>| Some(of(http?)?.into());
    Some(match field {
        AccessField::Time => at.into(),
        AccessField::Listener => (*record.listener).into(),
        AccessField::Peer => record.peer.to_string().into(),
        AccessField::Connection => record.connection.into(),
        AccessField::Command => record.command.into(),
        AccessField::Upstream => record.upstream.as_deref().unwrap_or("-").into(),
        AccessField::DurationUs => (record.duration_nanos / 1_000).into(),
        AccessField::UpstreamUs => (record.upstream_nanos / 1_000).into(),
        AccessField::RequestBytes => record.request_bytes.into(),
        AccessField::ReplyBytes => record.reply_bytes.into(),
        AccessField::Outcome => record.outcome.into(),
        AccessField::Status => http?.status.into(),
        AccessField::Protocol => http?.protocol.into(),
        AccessField::Method => return text(|http| Some(&http.method)),
        AccessField::Path => return text(|http| Some(&http.path)),
        AccessField::Authority => return text(|http| Some(&http.authority)),
        AccessField::Route => return text(|http| http.route.as_deref()),
        AccessField::Endpoint => return text(|http| http.endpoint.as_deref()),
        AccessField::User => return text(|http| http.user.as_deref()),
        AccessField::UserAgent => return text(|http| http.user_agent.as_deref()),
        AccessField::ForwardedFor => return text(|http| http.forwarded_for.as_deref()),
        AccessField::RequestId => return text(|http| http.request_id.as_deref()),
        AccessField::TraceId => return text(|http| http.trace_id.as_deref()),
    })
}

/// Pairs; what is not known is left out.
fn json(record: &AccessRecord, at: f64, fields: impl Iterator<Item = (&'static str, AccessField)>) -> String {
    let mut shown = String::from("{");
    for (name, field) in fields {
        if let Some(value) = value(field, record, at) {
            let comma = if shown.len() > 1 { "," } else { "" };
            shown.push_str(&format!("{comma}\"{name}\":{value}"));
        }
    }
    shown.push('}');
    shown
}

/// One of chosen fields as text. What is not known is `-`; what has a blank in it is quoted.
fn word(value: Option<Json>) -> String {
    match value {
        None => "-".to_owned(),
        Some(Json::String(text)) if text.is_empty() || text.contains([' ', '"']) => quoted(&text),
        Some(Json::String(text)) => text,
        // Seconds of Unix time, to the millisecond.
        Some(Json::Number(number)) if number.is_f64() => format!("{:.3}", number.as_f64().unwrap_or_default()),
        Some(other) => other.to_string(),
    }
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
