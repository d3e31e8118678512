//! MCP and A2A: real servers by the official SDKs as processes, a gateway in front of them, and the SDKs' clients as programs that run a
//! list of checks directly and through the gateway (`tests/clients/ai`).

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::deadline::until_true;
use crate::gateway::Gateway;
use crate::port;
use crate::stream::Address;
use crate::suite::bounded;
use crate::suite::checks::read;
use crate::suite::outcome::TestOutcomes;
use crate::tools;

/// For all checks of a client.
const DEADLINE: Duration = Duration::from_secs(180);

/// A key of the gateway that may call all tools.
pub const KEY: &str = crate::ai::KEY;

/// A key that may call `add` and `slow` of the server, and may reach no agent.
pub const LIMITED_KEY: &str = "sk-weir-ccccccccccccccccccccccccccccccccccccccccccc";

/// The hashes of both, as the file has them.
const HASHES: [&str; 2] = [
    "100d9230e98fa6b38710e53e7a179699304f740315e7a2968324695861f1cb6f",
    "c24f13abeaa66a0e2af3e0e53826b31f235dbb6eb88f61238334d42de829658d",
];

/// The language of an official SDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpSdk {
    /// PyPI's `mcp`.
    Python,
    /// npm's `@modelcontextprotocol/sdk`.
    Node,
}

impl McpSdk {
    /// A program of it.
    fn command(self, program: &str) -> Command {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let (interpreter, language, ending) = match self {
            Self::Python => (tools::ai_sdks(), "python", "py"),
            Self::Node => (PathBuf::from("node"), "node", "js"),
        };
        let mut command = Command::new(interpreter);
        command.arg(clients.join(format!("ai/{language}/{program}.{ending}")));
        // Lists of checks have the same runner in all clients of Python.
        command.env("PYTHONPATH", clients.join("postgres/python")).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// Runs a program of checks.
    ///
    /// # Panics
    /// If the SDK is not installed.
    #[must_use]
    pub fn run(self, program: &str, words: &[&str]) -> TestOutcomes {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = folder.path().join("output");
        let mut command = self.command(program);
        let end = bounded::run(command.args(words).current_dir(folder.path()), &output, DEADLINE);
        read(program, &bounded::written(&output), &end)
    }
}

/// A server of MCP, or an agent of A2A, by an official SDK; it ends with this value.
pub struct McpServer {
    child: Child,
    /// Where it listens.
    pub address: Address,
}

impl McpServer {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start(sdk: McpSdk) -> Self {
        Self::start_program(sdk, "mcp_server", &[])
    }

    /// Starts an agent on a free port, whose card names this URL.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start_agent(url: &str) -> Self {
        Self::start_program(McpSdk::Python, "a2a_server", &[url])
    }

    /// Starts one at this address.
    ///
    /// # Panics
    /// If it does not listen.
    #[must_use]
    pub fn start_at(sdk: McpSdk, address: Address) -> Self {
        Self::start_program_at(sdk, "mcp_server", &[], address)
    }

    fn start_program(sdk: McpSdk, program: &str, words: &[&str]) -> Self {
        Self::start_program_at(sdk, program, words, Address::port(port::free()))
    }

    fn start_program_at(sdk: McpSdk, program: &str, words: &[&str], address: Address) -> Self {
        let mut command = sdk.command(program);
        command.arg(address.tcp().port().to_string()).args(words).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { child: command.spawn().expect("the server starts"), address };
        until_true("the server to listen", || TcpStream::connect(server.address.tcp()).is_ok());
        server
    }

    /// Its own URL, of an agent with `/agent`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address.text())
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway with two workers in front of the endpoints of one server `test`, with [`KEY`] and [`LIMITED_KEY`], and an agent `test`
/// at the same endpoints. `more`: further lines of the first key.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn gateway(endpoints: &[&Address], state: &Path, more: &str) -> Gateway {
    gateway_at(Address::port(port::free()), endpoints, state, more)
}

/// [`gateway`] at this address.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn gateway_at(address: Address, endpoints: &[&Address], state: &Path, more: &str) -> Gateway {
    let endpoints: Vec<String> = endpoints.iter().map(|endpoint| format!("\"{}\"", endpoint.text())).collect();
    let text = format!(
        "[runtime]\nworkers = 2\n[ai]\nstate = \"{}\"\n\
         [[upstream]]\nname = \"tools\"\nendpoints = [{}]\n\
         [[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"{}\"\nupstream = \"tools\"\n\
         [listener.ai]\nkeys = \"required\"\nbody_bytes_max = \"1MiB\"\n\
         [[listener.ai.mcp]]\nname = \"test\"\nupstream = \"tools\"\n\
         [[listener.ai.a2a]]\nname = \"test\"\nupstream = \"tools\"\npath = \"/agent\"\n\
         [[listener.ai.key]]\nname = \"all\"\nsha256 = \"{}\"\n{more}\n\
         [[listener.ai.key]]\nname = \"limited\"\nsha256 = \"{}\"\nmcp_tools = [\"test/add\", \"*/slow\"]\na2a_agents = []\n",
        state.display(),
        endpoints.join(", "),
        address.text(),
        HASHES[0],
        HASHES[1],
    );
    Gateway::with_text(&text, address)
}

/// A gateway with two workers in front of two servers, `python` and `node`, which are `joint` together, with [`KEY`] and
/// [`LIMITED_KEY`], which may call `add` of the first and `slow` of both.
///
/// # Panics
/// If it does not start.
#[must_use]
pub fn federated_gateway(python: &Address, node: &Address, state: &Path) -> Gateway {
    let address = Address::port(port::free());
    let server = |name: &str, address: &Address| {
        format!("[[upstream]]\nname = \"{name}\"\nendpoints = [\"{}\"]\n", address.text())
    };
    let text = format!(
        "[runtime]\nworkers = 2\n[ai]\nstate = \"{}\"\n{}{}\
         [[listener]]\nname = \"ai\"\nprotocol = \"ai\"\nbind = \"{}\"\nupstream = \"python\"\n\
         [listener.ai]\nkeys = \"required\"\n\
         [[listener.ai.mcp]]\nname = \"python\"\nupstream = \"python\"\n\
         [[listener.ai.mcp]]\nname = \"node\"\nupstream = \"node\"\n\
         [[listener.ai.mcp_federation]]\nname = \"joint\"\nservers = [\"python\", \"node\"]\n\
         [[listener.ai.key]]\nname = \"all\"\nsha256 = \"{}\"\n\
         [[listener.ai.key]]\nname = \"limited\"\nsha256 = \"{}\"\nmcp_tools = [\"python/add\", \"*/slow\"]\n",
        state.display(),
        server("python", python),
        server("node", node),
        address.text(),
        HASHES[0],
        HASHES[1],
    );
    Gateway::with_text(&text, address)
}
