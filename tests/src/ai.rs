//! Language models: the lab's origin as a process, a gateway in front of it, and the SDKs of providers, each as a program that runs a list of checks against a URL
//! (`tests/clients/ai`). A check chooses its reply by words in its prompt, so the same program runs directly and through a gateway.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::deadline::until_true;
use crate::gateway::{Gateway, program};
use crate::http::HttpClient;
use crate::port;
use crate::stream::Address;
use crate::suite::bounded;
use crate::suite::checks::read;
use crate::suite::outcome::TestOutcomes;
use crate::tools;

/// For all checks of an SDK.
const DEADLINE: Duration = Duration::from_secs(180);

/// `weir lab origin ai`; it ends with this value.
pub struct AiOrigin {
    child: Child,
    /// Where it listens.
    pub address: Address,
}

impl AiOrigin {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with further words on its command line.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start_with(words: &[&str]) -> Self {
        let address = Address::port(port::free());
        let mut command = Command::new(program());
        command.args(["lab", "origin", "ai", "--bind", &address.text()]).args(words);
        let child = command.stdout(Stdio::null()).spawn().expect("the origin starts");
        let origin = Self { child, address };
        until_true("the origin to listen", || TcpStream::connect(origin.address.tcp()).is_ok());
        origin
    }

    /// The base URL of an SDK of OpenAI.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address.text())
    }

    /// Its ledger, once nothing is under way.
    ///
    /// # Panics
    /// If an entry stays open, or it does not answer.
    #[must_use]
    pub fn ledger(&self) -> Value {
        let mut ledger = Value::Null;
        until_true("every entry of the ledger to be closed", || {
            let mut client = HttpClient::connect(&self.address);
            ledger = serde_json::from_str(&client.get("/ledger").content()).expect("JSON");
            ledger["totals"]["open"] == 0
        });
        ledger
    }
}

impl AiOrigin {
    /// Entries of a page of its ledger.
    const PAGE: usize = 5_000;

    /// All entries of its ledger, once nothing is under way.
    ///
    /// # Panics
    /// If an entry stays open, or it does not answer.
    #[must_use]
    pub fn entries(&self) -> Vec<Value> {
        let page = |from: usize, count: usize| -> Value {
            let mut client = HttpClient::connect(&self.address);
            let response = client.get(&format!("/ledger?from={from}&count={count}"));
            serde_json::from_str(&response.content()).expect("JSON")
        };
        until_true("every entry of the ledger to be closed", || page(0, 0)["totals"]["open"] == 0);
        let mut entries = Vec::new();
        loop {
            let mut found = page(entries.len(), Self::PAGE);
            let Some(next) = found["entries"].as_array_mut().filter(|next| !next.is_empty()) else { return entries };
            entries.append(next);
        }
    }
}

impl Drop for AiOrigin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A key of the gateways of these tests.
pub const KEY: &str = "sk-weir-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Its hash.
const KEY_HASH: &str = "100d9230e98fa6b38710e53e7a179699304f740315e7a2968324695861f1cb6f";

/// The key of the provider, which no client has.
pub const PROVIDER_KEY: &str = "provider-key-of-the-operator";

/// A gateway in front of an origin, with two workers, [`KEY`] and this dialect. `state`: the folder of its budgets. `more`: further
/// lines of `[listener.ai]`, and tables behind it.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn gateway(origin: &AiOrigin, dialect: &str, state: &Path, more: &str) -> Gateway {
    gateway_under(origin, dialect, state, more, "")
}

/// [`gateway`] with further tables, such as `[limits]`.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn gateway_under(origin: &AiOrigin, dialect: &str, state: &Path, more: &str, tables: &str) -> Gateway {
    start(2, origin, dialect, state, more, tables, "")
}

/// A gateway with these further lines in the table of [`KEY`], and these tables.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn gateway_with_key(origin: &AiOrigin, state: &Path, key: &str, tables: &str) -> Gateway {
    start(2, origin, "openai", state, "", tables, key)
}

/// [`gateway_under`] with one worker, which all clients share, and OpenAI's dialect.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn gateway_with_one_worker(origin: &AiOrigin, state: &Path, more: &str, tables: &str) -> Gateway {
    start(1, origin, "openai", state, more, tables, "")
}

fn start(workers: u32, origin: &AiOrigin, dialect: &str, state: &Path, more: &str, tables: &str, key: &str) -> Gateway {
    let address = Address::port(port::free());
    let text = format!(
        "[runtime]\nworkers = {workers}\n{tables}[ai]\nstate = \"{}\"\n\
         [[upstream]]\nname = \"provider\"\nendpoints = [\"{}\"]\n\
         [upstream.ai]\ndialect = \"{dialect}\"\napi_key = \"env:PROVIDER_KEY\"\n\
         [[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"{}\"\nupstream = \"provider\"\n\
         [listener.ai]\nkeys = \"required\"\n{more}\n\
         [[listener.ai.price]]\nmodels = \"*\"\ninput = \"1\"\noutput = \"2\"\n\
         [[listener.ai.key]]\nname = \"sdk\"\nsha256 = \"{KEY_HASH}\"\n{key}",
        state.display(),
        origin.address.text(),
        address.text()
    );
    Gateway::with_environment(&text, address, &environment())
}

/// The environment of these gateways.
#[must_use]
pub fn environment() -> [(String, String); 1] {
    [("PROVIDER_KEY".to_owned(), PROVIDER_KEY.to_owned())]
}

/// The lines of the usage log in a folder of budgets.
///
/// # Panics
/// If a line is no JSON.
#[must_use]
pub fn usage(state: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(state.join("usage.log")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// An SDK of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sdk {
    /// PyPI's `openai`.
    OpenAi,
    /// PyPI's `anthropic`.
    Anthropic,
    /// PyPI's `langchain-openai`.
    LangChain,
    /// npm's `openai`.
    OpenAiNode,
    /// npm's `ai`, with `@ai-sdk/openai`.
    Vercel,
}

impl Sdk {
    /// All.
    pub const ALL: [Self; 5] = [Self::OpenAi, Self::Anthropic, Self::LangChain, Self::OpenAiNode, Self::Vercel];

    /// The first part of the names of its checks.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::LangChain => "langchain",
            Self::OpenAiNode => "openai_node",
            Self::Vercel => "vercel",
        }
    }

    /// It is a package of npm. Modules are found from the folder of the program, so nothing else names them.
    fn is_of_node(self) -> bool {
        matches!(self, Self::OpenAiNode | Self::Vercel)
    }

    /// Runs its checks against a base URL, which ends with `/v1`, with a key.
    ///
    /// # Panics
    /// If it is not installed.
    #[must_use]
    pub fn run(self, url: &str, key: &str) -> TestOutcomes {
        self.run_program("sdk", &[url, key])
    }

    /// The same without the checks of these names.
    ///
    /// # Panics
    /// If it is not installed.
    #[must_use]
    pub fn run_without(self, url: &str, key: &str, checks: &[&str]) -> TestOutcomes {
        self.run_program("sdk", &[&[url, key], checks].concat())
    }

    /// Runs the checks of what a translation makes of its requests, as [`run`](Self::run).
    ///
    /// # Panics
    /// If it is not installed.
    #[must_use]
    pub fn run_translated(self, url: &str, key: &str) -> TestOutcomes {
        self.run_program("translated", &[url, key])
    }

    fn run_program(self, program: &str, words: &[&str]) -> TestOutcomes {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = folder.path().join("output");
        let mut command = match self.is_of_node() {
            true => Command::new("node"),
            false => Command::new(tools::ai_sdks()),
        };
        let (language, ending) = if self.is_of_node() { ("node", "js") } else { ("python", "py") };
        command.arg(clients.join(format!("ai/{language}/{}_{program}.{ending}", self.name()))).args(words);
        // Lists of checks have the same runner in all clients of Python.
        command.env("PYTHONPATH", clients.join("postgres/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        let end = bounded::run(command.current_dir(folder.path()), &output, DEADLINE);
        read(self.name(), &bounded::written(&output), &end)
    }
}
