//! Options by their long names, from words and variables.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::note::{Mistake, SourceLine};

/// Options that are on without a value.
const SWITCHES: &[&str] = &[
    "strict",
    "dynamic",
    "streaming",
    "delta",
    "delta-diff",
    "skip-ssl-verification",
    "tls-enable",
    "redirect-http-to-https",
    "trust-proxy",
    "disable-all-endpoint",
    "disable-metrics-batch-endpoint",
    "disable-metrics-endpoint",
    "disable-features-endpoint",
    "disable-tokens-endpoint",
    "disable-instance-data-endpoint",
    "redis-secure",
    "markdown-help",
    "defer-token-validation",
    "consumption",
    "s3-force-path-style",
    "sentry-debug",
    "sentry-enable-logs",
];

/// Options with a value.
const VALUES: &[&str] = &[
    "upstream-url",
    "tokens",
    "pretrusted-tokens",
    "custom-client-headers",
    "backup-folder",
    "metrics-interval-seconds",
    "features-refresh-interval-seconds",
    "token-revalidation-interval-seconds",
    "upstream-certificate-file",
    "pkcs8-client-certificate-file",
    "pkcs8-client-key-file",
    "pkcs12-identity-file",
    "pkcs12-passphrase",
    "pem-cert-file",
    "upstream-request-timeout",
    "upstream-socket-timeout",
    "client-keepalive-timeout",
    "bootstrap-file",
    "client-tokens",
    "frontend-tokens",
    "reload-interval",
    "port",
    "interface",
    "base-path",
    "workers",
    "tls-server-key",
    "tls-server-cert",
    "tls-server-port",
    "cors-origin",
    "cors-allowed-headers",
    "cors-max-age",
    "cors-exposed-headers",
    "cors-methods",
    "allow-list",
    "deny-list",
    "proxy-trusted-servers",
    "instance-id",
    "app-name",
    "edge-request-timeout",
    "edge-keepalive-timeout",
    "log-format",
    "token-header",
    "edge-auth-header",
    "upstream-auth-header",
    "redis-url",
    "redis-mode",
    "redis-password",
    "redis-username",
    "redis-port",
    "redis-host",
    "redis-scheme",
    "redis-read-connection-timeout-milliseconds",
    "redis-write-connection-timeout-milliseconds",
    "s3-bucket-name",
    "aws-region",
    "aws-endpoint-url",
    "prometheus-remote-write-url",
    "prometheus-push-interval",
    "prometheus-username",
    "prometheus-password",
    "prometheus-user-id",
    "hosting-type",
    "datadog-url",
    "client-id",
    "hostname",
    "ec2-instance-id",
    "unleash-client-secret",
    "desired-environments",
    "desired-projects",
    "sentry-dsn",
    "sentry-tracing-rate",
    "otel-exporter-otlp-endpoint",
    "otel-exporter-otlp-protocol",
];

/// Short options of the process; those of a mode stand behind it.
const SHORT: &[(&str, char, &str)] = &[
    ("", 'p', "port"),
    ("", 'i', "interface"),
    ("", 'b', "base-path"),
    ("", 'w', "workers"),
    ("", 'a', "app-name"),
    ("", 'l', "log-format"),
    ("edge", 'u', "upstream-url"),
    ("edge", 'b', "backup-folder"),
    ("edge", 'm', "metrics-interval-seconds"),
    ("edge", 'f', "features-refresh-interval-seconds"),
    ("edge", 't', "tokens"),
    ("edge", 'p', "pretrusted-tokens"),
    ("edge", 'H', "custom-client-headers"),
    ("edge", 's', "skip-ssl-verification"),
    ("offline", 'b', "bootstrap-file"),
    ("offline", 't', "tokens"),
    ("offline", 'c', "client-tokens"),
    ("offline", 'f', "frontend-tokens"),
    ("offline", 'r', "reload-interval"),
];

/// Variables whose name is not that of their option.
const VARIABLES: &[(&str, &str)] =
    &[("EDGE_DEFER_TOKEN_VALIDATION", "defer-token-validation"), ("EDGE_HOSTING", "hosting-type")];

/// A variable that shells set for other programs too.
const HOSTNAME: &str = "HOSTNAME";

/// The value of an option.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) value: String,
    pub(super) place: SourceLine,
    /// The variable that has it, if it came from the environment.
    pub(super) variable: Option<String>,
}

/// A command line with its environment.
#[derive(Debug)]
pub(super) struct Options {
    given: BTreeMap<&'static str, Vec<Given>>,
    /// Options that the import has looked at.
    read: RefCell<BTreeSet<&'static str>>,
    pub(super) mode: Option<String>,
    pub(super) top: SourceLine,
}

/// Reads the lines. Words take precedence over variables.
pub(super) fn read(name: &str, text: &str) -> Result<Options, Mistake> {
    let file: Rc<str> = name.into();
    let top = SourceLine { file: file.clone(), line: 1 };
    let mut options = Options { given: BTreeMap::new(), read: RefCell::default(), mode: None, top };
    let mut lines = text.lines().zip(1..).map(|(line, number)| (line, SourceLine { file: file.clone(), line: number }));
    let (mut variables, mut words) = (Vec::new(), Vec::new());
    for (line, place) in lines.by_ref() {
        match variable(line) {
            Some((name, value)) if words.is_empty() => variables.push((name, value, place)),
            _ => words.push((line, place)),
        }
    }
    options.read_words(words)?;
    for (name, value, place) in variables {
        let Some(option) = option_of(name) else { continue };
        // A word takes precedence, and so does a variable that came before.
        options
            .given
            .entry(option)
            .or_insert_with(|| vec![Given { value: value.to_owned(), place, variable: Some(name.to_owned()) }]);
    }
    Ok(options)
}

/// `NAME=value`, as a file of an environment has it.
fn variable(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    let value = value.trim();
    let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    is_name.then(|| (name, quoted.unwrap_or(value)))
}

/// The option of a variable.
fn option_of(variable: &str) -> Option<&'static str> {
    if let Some((_, option)) = VARIABLES.iter().find(|(name, _)| *name == variable) {
        return Some(option);
    }
    if variable == HOSTNAME {
        return None;
    }
    let wanted = variable.to_ascii_lowercase().replace('_', "-");
    SWITCHES.iter().chain(VALUES).find(|option| **option == wanted).copied()
}

impl Options {
    fn read_words(&mut self, words: Vec<(&str, SourceLine)>) -> Result<(), Mistake> {
        let mut words = words.into_iter().filter(|(word, _)| !word.is_empty()).peekable();
        // The name of the program may stand in front.
        words.next_if(|(word, _)| word.rsplit('/').next() == Some("unleash-edge"));
        while let Some((word, place)) = words.next() {
            let (option, inline) = match self.option(word) {
                Some(found) => found,
                None if word.starts_with('-') => {
                    return Err(Mistake::new(&place, format!("`{word}` is no option of Unleash Edge that is known")));
                }
                None if self.mode.is_none() => {
                    self.mode = Some(word.to_owned());
                    continue;
                }
                None => return Err(Mistake::new(&place, "a word without an option in front of it")),
            };
            let value = match (inline, SWITCHES.contains(&option)) {
                (Some(value), _) => value,
                (None, true) => "true".to_owned(),
                (None, false) => match words.next() {
                    Some((value, _)) => value.to_owned(),
                    None => return Err(Mistake::new(&place, format!("`--{option}` has no value"))),
                },
            };
            self.given.entry(option).or_default().push(Given { value, place, variable: None });
        }
        Ok(())
    }

    /// The option of a word, and the value behind its equals sign.
    fn option(&self, word: &str) -> Option<(&'static str, Option<String>)> {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value.to_owned())));
            let known = SWITCHES.iter().chain(VALUES).find(|option| **option == name)?;
            return Some((known, value));
        }
        let mut letters = word.strip_prefix('-')?.chars();
        let (letter, rest) = (letters.next()?, letters.as_str());
        let mode = self.mode.as_deref().unwrap_or("");
        let of = |mode: &str| SHORT.iter().find(|(of, short, _)| *of == mode && *short == letter);
        let (_, _, option) = of(mode).or_else(|| of(""))?;
        let rest = rest.strip_prefix('=').unwrap_or(rest);
        Some((option, (!rest.is_empty()).then(|| rest.to_owned())))
    }

    /// All values of an option, as they stand.
    fn all(&self, option: &str) -> Option<&Vec<Given>> {
        let (known, given) = self.given.get_key_value(option)?;
        self.read.borrow_mut().insert(known);
        Some(given)
    }

    /// The last value of an option.
    pub(super) fn last(&self, option: &str) -> Option<&Given> {
        self.all(option)?.last()
    }

    /// Options that nothing has looked at, and the place of each.
    pub(super) fn unread(&self) -> Vec<(&'static str, SourceLine)> {
        let read = self.read.borrow();
        let unread = self.given.iter().filter(|(option, _)| !read.contains(*option));
        unread.filter_map(|(option, given)| Some((*option, given.last()?.place.clone()))).collect()
    }

    /// Whether a switch is on.
    pub(super) fn is_set(&self, option: &str) -> bool {
        self.last(option).is_some_and(|given| !matches!(&*given.value, "false" | "0" | ""))
    }

    /// All values of an option, which may stand several times and be separated by commas.
    pub(super) fn list(&self, option: &str) -> Vec<Given> {
        let all = self.all(option).into_iter().flatten();
        let parts = all.flat_map(|given| {
            let parts = given.value.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| Given { value: part.to_owned(), ..given.clone() }).collect::<Vec<_>>()
        });
        parts.collect()
    }

    /// The value of an option that is a number.
    pub(super) fn number(&self, option: &str) -> Result<Option<u64>, Mistake> {
        let Some(given) = self.last(option) else { return Ok(None) };
        match given.value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Mistake::new(&given.place, format!("`--{option}` is not a number"))),
        }
    }
}
