//! `configureFailPoint`: errors, lost connections and delays on request.
//!
//! Source: the fail point `failCommand` of MongoDB, as the unified test format of the driver specifications uses it.

use std::collections::HashMap;
use std::time::Duration;

use weir_mongodb_codec::bson::{Document, Kind, Value};

use super::failure::{Failure, code};
use super::request::Request;

/// The one fail point that has an effect.
const FAIL_COMMAND: &[u8] = b"failCommand";

/// Other fail points whose counts are kept. 64: tests set the same few again and again.
const OTHERS_MAX: usize = 64;

/// Commands of a fail point, and labels of an error. 256: there are not as many commands.
const LIST_MAX: usize = 256;

/// The longest block. 1 hour: longer than any test.
const BLOCK_MAX: Duration = Duration::from_secs(3_600);

/// Fail points that are set.
#[derive(Debug, Default)]
pub(super) struct FailPoints {
    fail_command: Option<FailCommand>,
    entered: i64,
    others: HashMap<Vec<u8>, i64>,
}

/// How often a fail point strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    AlwaysOn,
    Times(i64),
    Skip(i64),
}

/// Whom the fail point strikes, and how.
#[derive(Clone, Debug)]
struct FailCommand {
    mode: Mode,
    commands: Vec<Vec<u8>>,
    /// The client that gave this name of its application.
    application: Option<Vec<u8>>,
    /// Database and collection.
    namespace: Option<Vec<u8>>,
    strike: Strike,
}

/// The effect on a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Strike {
    /// First it waits so long.
    pub block: Option<Duration>,
    /// Then the connection ends,
    pub closes: bool,
    /// or this error is the reply,
    pub failure: Option<Failure>,
    /// or the command runs, and this `writeConcernError` is in its reply.
    pub write_concern_error: Option<Vec<u8>>,
    /// Labels beside a `writeConcernError`.
    pub labels: Vec<String>,
}

impl FailPoints {
    /// Sets, changes or removes a fail point; the result is the count of its strikes so far.
    pub fn configure(&mut self, request: &Request<'_>) -> Result<i64, Failure> {
        let name = request.command.value.as_string().unwrap_or_default();
        let mode = request.get(b"mode")?.ok_or_else(|| wrong("When enabling a fail point, a mode is needed"))?;
        let mode = read_mode(mode)?;
        if name != FAIL_COMMAND {
            let count = *self.others.get(name).unwrap_or(&0);
            if self.others.len() < OTHERS_MAX {
                self.others.insert(name.to_vec(), count);
            }
            return Ok(count);
        }
        self.fail_command = match mode {
            None => None,
            Some(mode) => {
                let data = request.document(b"data")?.ok_or_else(|| wrong("failCommand needs data"))?;
                Some(FailCommand::read(mode, data)?)
            }
        };
        Ok(self.entered)
    }

    /// Whether any fail point can strike.
    pub fn is_set(&self) -> bool {
        self.fail_command.is_some()
    }

    /// The strike on a command; `None`: nothing happens to it.
    pub fn strike(&mut self, request: &Request<'_>, application: &[u8]) -> Option<Strike> {
        let point = self.fail_command.as_mut()?;
        if !point.is_for(request, application) {
            return None;
        }
        match &mut point.mode {
            Mode::AlwaysOn => {}
            Mode::Skip(0) => {}
            Mode::Skip(left) => {
                *left -= 1;
                return None;
            }
            Mode::Times(left) => *left -= 1,
        }
        let strike = point.strike.clone();
        if matches!(point.mode, Mode::Times(left) if left <= 0) {
            self.fail_command = None;
        }
        self.entered += 1;
        Some(strike)
    }
}

impl FailCommand {
    fn read(mode: Mode, data: Document<'_>) -> Result<Self, Failure> {
        let mut point =
            Self { mode, commands: Vec::new(), application: None, namespace: None, strike: Strike::default() };
        let (mut error_code, mut labels, mut blocks, mut block) = (None, None, false, None);
        for element in data.elements() {
            let element = element?;
            let value = element.value;
            match element.name {
                b"failCommands" => point.commands = texts(value)?,
                b"appName" => point.application = value.as_string().map(<[u8]>::to_vec),
                b"namespace" => point.namespace = value.as_string().map(<[u8]>::to_vec),
                b"closeConnection" => point.strike.closes = value.is_true(),
                b"errorCode" => error_code = value.as_integer().and_then(|code| i32::try_from(code).ok()),
                b"errorLabels" => labels = Some(texts(value)?),
                b"blockConnection" => blocks = value.is_true(),
                b"blockTimeMS" => block = value.as_integer().and_then(|time| u64::try_from(time).ok()),
                b"writeConcernError" if value.kind == Kind::Document => {
                    point.strike.write_concern_error = Some(value.bytes.to_vec());
                }
                // Commands of servers between themselves, and details that no driver uses.
                b"failInternalCommands" | b"failAllCommands" | b"threadName" | b"extraInfo" | b"errorExtraInfo" => {}
                name => return Err(wrong(format!("failCommand has no {}", String::from_utf8_lossy(name)))),
            }
        }
        let labels = labels
            .map(|labels| labels.iter().map(|label| String::from_utf8_lossy(label).into_owned()).collect::<Vec<_>>());
        point.strike.labels = labels.clone().unwrap_or_default();
        if let Some(code) = error_code {
            let text = "Failing command via 'failCommand' failpoint";
            point.strike.failure = Some(Failure { labels, ..Failure::new(code, text) });
        }
        if blocks {
            let block = block.ok_or_else(|| wrong("blockTimeMS must be set with blockConnection"))?;
            point.strike.block = Some(Duration::from_millis(block).min(BLOCK_MAX));
        }
        Ok(point)
    }

    fn is_for(&self, request: &Request<'_>, application: &[u8]) -> bool {
        let is_named = self.commands.iter().any(|name| name == request.command.name);
        let is_its_client = self.application.as_ref().is_none_or(|name| name == application);
        let namespace = || request.namespace().ok();
        is_named && is_its_client && (self.namespace.is_none() || self.namespace == namespace())
    }
}

/// `None`: off.
fn read_mode(mode: Value<'_>) -> Result<Option<Mode>, Failure> {
    match mode.as_string() {
        Some(b"off") => return Ok(None),
        Some(b"alwaysOn") => return Ok(Some(Mode::AlwaysOn)),
        _ => {}
    }
    let counted = mode.as_document()?.map(Document::first_element).transpose()?.flatten();
    let counted = counted.and_then(|element| Some((element.name, element.value.as_integer()?)));
    match counted {
        Some((b"times", count)) if count >= 1 => Ok(Some(Mode::Times(count))),
        Some((b"times", 0)) => Ok(None),
        Some((b"skip", count)) if count >= 0 => Ok(Some(Mode::Skip(count))),
        _ => Err(wrong("'mode' must be off, alwaysOn, {times: n} or {skip: n}")),
    }
}

fn texts(array: Value<'_>) -> Result<Vec<Vec<u8>>, Failure> {
    let texts: Vec<Vec<u8>> = match array.as_document()?.filter(|_| array.kind == Kind::Array) {
        Some(array) => {
            let text =
                |value: Value<'_>| value.as_string().map(<[u8]>::to_vec).ok_or_else(|| wrong("texts are needed"));
            array.elements().take(LIST_MAX).map(|element| text(element?.value)).collect::<Result<_, _>>()?
        }
        None => return Err(wrong("an array of texts is needed")),
    };
    Ok(texts)
}

fn wrong(text: impl Into<String>) -> Failure {
    Failure::new(code::FAIL_POINT_SET_FAILED, text)
}

#[cfg(test)]
mod tests {
    use weir_mongodb_codec::bson::{Writer, document};
    use weir_mongodb_codec::message::{self, Flags, Ids, Message};

    use super::*;

    fn with<T>(write: impl FnOnce(&mut Writer<'_>), then: impl FnOnce(&Request<'_>) -> T) -> T {
        let mut out = Vec::new();
        message::write(&mut out, Ids { request: 1, response_to: 0 }, Flags::empty(), write);
        then(&Request::of_message(Message::read(&out).expect("a message")).expect("a command"))
    }

    fn set(
        points: &mut FailPoints,
        mode: impl Fn(&mut Writer<'_>),
        data: impl Fn(&mut Writer<'_>),
    ) -> Result<i64, Failure> {
        let command = |body: &mut Writer<'_>| {
            body.string("configureFailPoint", "failCommand");
            mode(body);
            body.document("data", |body| data(body));
            body.string("$db", "admin");
        };
        with(command, |request| points.configure(request))
    }

    fn strike(points: &mut FailPoints, name: &str) -> Option<Strike> {
        let command = |body: &mut Writer<'_>| {
            body.string(name, "c");
            body.string("$db", "d");
        };
        with(command, |request| points.strike(request, b"app"))
    }

    fn for_find(body: &mut Writer<'_>) {
        body.array("failCommands", ["find"], |body, name, command| body.string(name, command));
        body.int32("errorCode", 91);
    }

    #[test]
    fn a_fail_point_strikes_as_often_as_it_says() {
        let mut points = FailPoints::default();
        let twice = |body: &mut Writer<'_>| body.document("mode", |mode| mode.int32("times", 2));
        assert_eq!(set(&mut points, twice, for_find), Ok(0));
        assert_eq!(strike(&mut points, "insert"), None);
        for _ in 0..2 {
            let failure = strike(&mut points, "find").expect("a strike").failure.expect("an error");
            assert_eq!((failure.code, failure.labels), (91, None));
        }
        assert_eq!((strike(&mut points, "find"), points.is_set()), (None, false));
        let skip = |body: &mut Writer<'_>| body.document("mode", |mode| mode.int32("skip", 1));
        assert_eq!(set(&mut points, skip, for_find), Ok(2));
        assert!(strike(&mut points, "find").is_none() && strike(&mut points, "find").is_some());
        set(&mut points, |body| body.string("mode", "off"), |_| {}).expect("off");
        assert!(!points.is_set());
    }

    #[test]
    fn a_fail_point_names_its_application_and_its_namespace() {
        let mut points = FailPoints::default();
        let always = |body: &mut Writer<'_>| body.string("mode", "alwaysOn");
        for (field, value, strikes) in
            [("appName", "app", true), ("appName", "b", false), ("namespace", "d.c", true), ("namespace", "d.e", false)]
        {
            let data = |body: &mut Writer<'_>| {
                for_find(body);
                body.string(field, value);
            };
            set(&mut points, always, data).expect("set");
            assert_eq!(strike(&mut points, "find").is_some(), strikes, "{field} {value}");
        }
        let wrong = set(&mut points, always, |body| body.string("colour", "red"));
        assert_eq!(wrong.expect_err("refused").code, code::FAIL_POINT_SET_FAILED);
        let document = |body: &mut Writer<'_>| body.document("writeConcernError", |error| error.int32("code", 91));
        set(&mut points, always, |body| {
            for_find(body);
            document(body);
        })
        .expect("set");
        let mut bytes = Vec::new();
        document_of(&mut bytes);
        assert_eq!(strike(&mut points, "find").and_then(|strike| strike.write_concern_error), Some(bytes));
    }

    fn document_of(out: &mut Vec<u8>) {
        document(out, |error| error.int32("code", 91));
    }
}
